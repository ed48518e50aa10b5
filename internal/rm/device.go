package rm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/culvert-io/culvert/internal/abi/nvrm"
	"github.com/culvert-io/culvert/internal/dev"
)

// A Card is a GPU as the kernel driver lists it.
type Card struct {
	PCI   string // "0000:65:00.0"
	Minor uint32 // of its device node: /dev/nvidia<Minor>
	ID    uint32
	BAR1  uint64 // size
}

// Cards lists the GPUs, including those whose device nodes cannot be opened.
func (c *Client) Cards() ([]Card, error) {
	var info [nvrm.MaxCards]nvrm.CardInfo
	if err := dev.Ioctl(c.ctl, nvrm.IoctlCardInfo, &info); err != nil {
		return nil, unavailable("list of GPUs", err)
	}
	var cards []Card
	for _, i := range info {
		if i.Valid == 0 {
			continue
		}
		cards = append(cards, Card{
			PCI:   fmt.Sprintf("%04x:%02x:%02x.%d", i.PCI.Domain, i.PCI.Bus, i.PCI.Slot, i.PCI.Function),
			Minor: i.MinorNumber, ID: i.GPUID, BAR1: i.FBSize,
		})
	}
	return cards, nil
}

// A device is a GPU in a client. It lives as long as the client.
type device struct {
	card   Card
	client *Client
	handle nvrm.Handle
	node   dev.Node // kept open: without it the driver rejects the device object
	path   string
}

// device is the GPU at a PCI address.
func (c *Client) device(pci string) (*device, error) {
	card, err := c.card(pci)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	if d := c.devices[card.Minor]; d != nil {
		return d, nil
	}
	d, err := c.openDevice(card)
	if err != nil {
		return nil, err
	}
	c.devices[card.Minor] = d
	return d, nil
}

func (c *Client) card(pci string) (Card, error) {
	cards, err := c.Cards()
	if err != nil {
		return Card{}, err
	}
	want := normalPCI(pci)
	var seen []string
	for _, card := range cards {
		if card.PCI == want {
			return card, nil
		}
		seen = append(seen, card.PCI)
	}
	return Card{}, unavailable("list of GPUs", fmt.Errorf("no GPU at %q (GPUs: %v)", pci, seen))
}

// normalPCI converts an address to the form of Card.PCI: libraries differ in case
// and in the number of digits of the domain. Invalid addresses stay unchanged.
func normalPCI(s string) string {
	parts := strings.FieldsFunc(s, func(r rune) bool { return r == ':' || r == '.' })
	if len(parts) != 4 {
		return s
	}
	var n [4]uint64
	for i, p := range parts {
		v, err := strconv.ParseUint(p, 16, 32)
		if err != nil {
			return s
		}
		n[i] = v
	}
	return fmt.Sprintf("%04x:%02x:%02x.%d", n[0], n[1], n[2], n[3])
}

func (c *Client) openDevice(card Card) (*device, error) {
	if err := partitioned(c.os, card.Minor); err != nil {
		return nil, err
	}
	path := nvrm.DevicePrefix + strconv.FormatUint(uint64(card.Minor), 10)
	node, err := c.os.Open(path)
	if err != nil {
		return nil, nodeUnavailable(err)
	}
	d := &device{card: card, client: c, node: node, path: path}
	if err := d.alloc(c.newHandle()); err != nil {
		return nil, errors.Join(unavailable("device object", err), node.Close())
	}
	return d, nil
}

func (d *device) alloc(h nvrm.Handle) error {
	c := d.client
	id := nvrm.GPUGetIDInfoV2Params{GPUID: d.card.ID}
	if err := control(c.ctl, c.handle, nvrm.NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2, &id); err != nil {
		return fmt.Errorf("instance of GPU %#x: %w", d.card.ID, err)
	}
	params := nvrm.NV0080AllocParameters{
		DeviceID:     id.DeviceInstance,
		HClientShare: c.handle,
		VAMode:       nvrm.NV_DEVICE_ALLOCATION_VAMODE_MULTIPLE_VASPACES,
	}
	p := nvrm.NVOS64Parameters{HRoot: c.handle, HObjectParent: c.handle, HObjectNew: h, HClass: nvrm.NV01_DEVICE_0}
	if err := alloc(c.ctl, &p, &params); err != nil {
		return fmt.Errorf("GPU %s, instance %d: %w", d.card.PCI, id.DeviceInstance, err)
	}
	d.handle = p.HObjectNew
	return nil
}
