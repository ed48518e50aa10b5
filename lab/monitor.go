package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// A monitor sends commands to QEMU, one at a time, over its machine protocol
// (QMP): JSON objects, with events between the answers.
type monitor struct {
	conn net.Conn
	dec  *json.Decoder
}

// A message is anything that QEMU sends.
type message struct {
	QMP    json.RawMessage
	Return json.RawMessage
	Error  *struct{ Class, Desc string }
	Event  string
	Data   struct{ Device string }
}

// openMonitor waits for QEMU's greeting and leaves negotiation mode.
func openMonitor(conn net.Conn) (*monitor, error) {
	m := &monitor{conn, json.NewDecoder(conn)}
	var greeting message
	if err := m.dec.Decode(&greeting); err != nil || greeting.QMP == nil {
		return nil, fmt.Errorf("qmp: no greeting: %w", noEOF(err))
	}
	return m, m.execute("qmp_capabilities", nil, "")
}

// unplugTimeout is long: a guest may wait seconds for a second press of its slot's
// button, and many seconds on a busy machine.
const unplugTimeout = 3 * time.Minute

// unplug removes a drive and returns when the guest's kernel has released it.
func (m *monitor) unplug(id string) error {
	if err := m.conn.SetDeadline(time.Now().Add(unplugTimeout)); err != nil {
		return err
	}
	return m.execute("device_del", map[string]string{"id": id}, id)
}

// execute runs a command. If deleted is a device, it also waits for the event that
// reports its removal, which may come before or after the answer.
func (m *monitor) execute(name string, args any, deleted string) error {
	command := struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{name, args}
	if err := json.NewEncoder(m.conn).Encode(command); err != nil {
		return fmt.Errorf("qmp %s: %w", name, err)
	}
	for answered, gone := false, deleted == ""; !answered || !gone; {
		var r message
		if err := m.dec.Decode(&r); err != nil {
			return fmt.Errorf("qmp %s: %w", name, noEOF(err))
		}
		switch {
		case r.Error != nil:
			return fmt.Errorf("qmp %s: %s (%s)", name, r.Error.Desc, r.Error.Class)
		case r.Return != nil:
			answered = true
		case r.Event == "DEVICE_DELETED" && r.Data.Device == deleted:
			gone = true
		}
	}
	return nil
}

// noEOF makes the end of the connection an error.
func noEOF(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
