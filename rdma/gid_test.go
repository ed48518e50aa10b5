package rdma

import (
	"net/netip"
	"strings"
	"testing"
)

func entry(i int, addr string, typ GIDType) GIDEntry {
	e := GIDEntry{Index: i, Port: 1, Type: typ}
	if addr != "" {
		e.GID = GIDFrom(netip.MustParseAddr(addr))
	}
	return e
}

// mlx is a table as a ConnectX port shows it: each address as v1 and v2.
var mlx = []GIDEntry{
	entry(0, "fe80::1", GIDRoCEv1), entry(1, "fe80::1", GIDRoCEv2),
	entry(2, "10.0.0.5", GIDRoCEv1), entry(3, "10.0.0.5", GIDRoCEv2),
	entry(4, "2001:db8::5", GIDRoCEv1), entry(5, "2001:db8::5", GIDRoCEv2),
	entry(6, "", GIDRoCEv2),
}

func TestChooseGID(t *testing.T) {
	four, six, none := 4, 6, -1
	for name, c := range map[string]struct {
		table []GIDEntry
		link  LinkLayer
		want  GIDWant
		index int
		err   string
	}{
		"peer over IPv4":             {mlx, LinkEthernet, GIDWant{Peer: netip.MustParseAddr("10.0.0.6")}, 3, ""},
		"peer over mapped IPv4":      {mlx, LinkEthernet, GIDWant{Peer: netip.MustParseAddr("::ffff:10.0.0.6")}, 3, ""},
		"peer over IPv6":             {mlx, LinkEthernet, GIDWant{Peer: netip.MustParseAddr("2001:db8::6")}, 5, ""},
		"no peer":                    {mlx, LinkEthernet, GIDWant{}, 3, ""},
		"local address":              {mlx, LinkEthernet, GIDWant{Local: netip.MustParseAddr("2001:db8::5")}, 5, ""},
		"local address that is not":  {mlx, LinkEthernet, GIDWant{Local: netip.MustParseAddr("10.0.0.9")}, 0, "no GID for the local address 10.0.0.9"},
		"index":                      {mlx, LinkEthernet, GIDWant{Index: &four}, 4, ""},
		"index of an empty entry":    {mlx, LinkEthernet, GIDWant{Index: &six}, 0, "GID index 6 is empty"},
		"index outside":              {mlx, LinkEthernet, GIDWant{Index: &none}, 0, "GID index -1 is empty"},
		"only v1":                    {mlx[:1], LinkEthernet, GIDWant{Peer: netip.MustParseAddr("10.0.0.6")}, 0, ""},
		"link-local is the last":     {mlx[:4], LinkEthernet, GIDWant{Peer: netip.MustParseAddr("192.0.2.1")}, 3, ""},
		"IPv4 link-local":            {[]GIDEntry{entry(0, "169.254.1.1", GIDRoCEv2), entry(1, "10.1.1.1", GIDRoCEv1)}, LinkEthernet, GIDWant{}, 1, ""},
		"loopback for loopback":      {[]GIDEntry{entry(0, "10.1.1.1", GIDRoCEv2), entry(1, "127.0.0.1", GIDRoCEv2)}, LinkEthernet, GIDWant{Peer: netip.MustParseAddr("127.0.0.1")}, 1, ""},
		"no loopback for other host": {[]GIDEntry{entry(0, "127.0.0.1", GIDRoCEv2), entry(1, "10.1.1.1", GIDRoCEv2)}, LinkEthernet, GIDWant{Peer: netip.MustParseAddr("10.0.0.6")}, 1, ""},
		"InfiniBand":                 {[]GIDEntry{entry(0, "fe80::2", GIDInfiniBand), entry(1, "2001::2", GIDInfiniBand)}, LinkInfiniBand, GIDWant{Peer: netip.MustParseAddr("10.0.0.6")}, 0, ""},
		"zeroes only":                {mlx[6:], LinkEthernet, GIDWant{}, 0, "GID table is empty"},
		"no table":                   {nil, LinkEthernet, GIDWant{}, 0, "GID table is empty"},
	} {
		got, err := ChooseGID(c.table, c.link, c.want)
		switch {
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), "fix:")):
			t.Errorf("%s: error %v, want %q with a fix", name, err, c.err)
		case c.err == "" && (err != nil || got.Index != c.index || got.Why == ""):
			t.Errorf("%s: index %d (%s), error %v; want index %d", name, got.Index, got.Why, err, c.index)
		}
	}
}

func TestGIDString(t *testing.T) {
	if s := GIDFrom(netip.MustParseAddr("10.0.0.5")).String(); s != "0000:0000:0000:0000:0000:ffff:0a00:0005" {
		t.Error(s)
	}
}
