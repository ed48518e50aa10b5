package stats

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
)

// A metric is one family of the text that WriteMetrics prints.
type metric struct {
	name, kind, help string
	values           func(s *Snapshot, add func(value float64, labels ...string))
}

var metrics = []metric{
	{"culvert_transfers_total", "counter", "Transfers, by direction and route.", byRoute(func(t *Totals, dir, r int) int64 { return t.Ops[dir][r] })},
	{"culvert_transferred_bytes_total", "counter", "Bytes moved, by direction and route.", byRoute(func(t *Totals, dir, r int) int64 { return t.Bytes[dir][r] })},
	{"culvert_host_memory_bytes_total", "counter", "Bytes that went through host memory.", one(func(s *Snapshot) float64 { return float64(s.Totals.Host) })},
	{"culvert_transfer_errors_total", "counter", "Transfers that failed.", one(func(s *Snapshot) float64 { return float64(s.Totals.Errors) })},
	{"culvert_transfer_retries_total", "counter", "Repeated parts of transfers.", one(func(s *Snapshot) float64 { return float64(s.Totals.Retries) })},
	{"culvert_transfer_seconds_total", "counter", "Time in transfers, summed over those that ran at the same time.", one(func(s *Snapshot) float64 { return s.Totals.Time.Seconds() })},
	{"culvert_process_running", "gauge", "1 while the process runs, 0 after its end.", one(func(s *Snapshot) float64 {
		if s.Alive {
			return 1
		}
		return 0
	})},
}

func one(value func(*Snapshot) float64) func(*Snapshot, func(float64, ...string)) {
	return func(s *Snapshot, add func(float64, ...string)) { add(value(s)) }
}

func byRoute(count func(t *Totals, dir, route int) int64) func(*Snapshot, func(float64, ...string)) {
	return func(s *Snapshot, add func(float64, ...string)) {
		for dir, direction := range []string{"read", "write"} {
			for r, name := range s.Routes {
				if s.Totals.Ops[dir][r] != 0 || s.Totals.Bytes[dir][r] != 0 {
					add(float64(count(&s.Totals, dir, r)), "direction", direction, "route", name)
				}
			}
		}
	}
}

// WriteMetrics prints the totals in Prometheus' text format, which the textfile
// collector of its node exporter reads.
func WriteMetrics(w io.Writer, list []*Snapshot) error {
	var b strings.Builder
	for _, m := range metrics {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", m.name, m.help, m.name, m.kind)
		for _, s := range list {
			m.values(s, func(value float64, more ...string) {
				labels := append([]string{"pid", strconv.Itoa(s.PID), "uid", strconv.Itoa(s.UID), "command", s.Command}, more...)
				fmt.Fprintf(&b, "%s{%s} %s\n", m.name, label(labels), strconv.FormatFloat(value, 'g', -1, 64))
			})
		}
	}
	b.WriteString("# EOF\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// label prints pairs of names and values. Values come from other processes.
func label(pairs []string) string {
	var list []string
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, fmt.Sprintf(`%s="%s"`, pairs[i], escapes.Replace(strings.Map(printable, pairs[i+1]))))
	}
	return strings.Join(list, ",")
}

// printable replaces what could control a terminal on which metrics are looked at, and
// bytes that are no text.
func printable(r rune) rune {
	if unicode.IsPrint(r) || r == '\n' {
		return r
	}
	return unicode.ReplacementChar
}

var escapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
