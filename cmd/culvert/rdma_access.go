package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/spf13/pflag"

	"github.com/culvert-io/culvert/internal/env"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/rdma/ibverbs"
	"github.com/culvert-io/culvert/rdma/tcp"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/soft/nic"
)

// tokenVariable has the token if there is no --token-file, providerVariable the default
// of --provider.
const (
	tokenVariable    = "CULVERT_RDMA_TOKEN"
	providerVariable = "CULVERT_RDMA_PROVIDER"
)

// minToken is the shortest token in bytes: a guess must be hopeless.
const minToken = 16

// rdmaAccess is how a command reaches its peer.
type rdmaAccess struct {
	provider  string
	local     string
	tokenFile string
	cert      string
	key       string
	ca        string
	// perftest says that peers are those of perftest's exchange, which has no secret: then
	// nothing protects the measured memory of a network adapter, and none is asked for.
	perftest bool
}

func (a *rdmaAccess) flags(f *pflag.FlagSet) {
	f.StringVar(&a.provider, "provider", "", "what moves the data: tcp, ibverbs (a network adapter) or soft (default $"+providerVariable+", or tcp)")
	f.StringVarP(&a.local, "address", "a", "", "IP address of this host (default 127.0.0.1, or the one that reaches the server)")
	f.StringVar(&a.tokenFile, "token-file", "", "file with a secret that both ends know")
	f.StringVar(&a.cert, "tls-cert", "", "file with the certificate of this end (PEM)")
	f.StringVar(&a.key, "tls-key", "", "file with its private key (PEM)")
	f.StringVar(&a.ca, "tls-ca", "", "file with the authorities of the other end's certificate (PEM)")
}

// An rdmaDevice is an open device with what its peers must show.
type rdmaDevice struct {
	rdma.Device
	provider rdma.Provider
	token    []byte
	tls      *tls.Config
}

// name is the name of the provider.
func (a *rdmaAccess) name() string { return cmp.Or(a.provider, env.Get(providerVariable), tcp.Name) }

// open opens the device of the provider for peers that reach this host at an address.
// The adapters of the software machine are those of m.
func (a *rdmaAccess) open(m *machine.Machine, host string) (*rdmaDevice, error) {
	d := &rdmaDevice{}
	var err error
	if d.token, err = a.token(); err != nil {
		return nil, err
	}
	if d.tls, err = a.tlsConfig(); err != nil {
		return nil, err
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return nil, usageError{fmt.Errorf("--address %s must be an IP address", host)}
	}
	open := a.perftest && a.name() == ibverbs.Name
	if !ip.IsLoopback() && len(d.token) == 0 && d.tls == nil && !open {
		return nil, usageError{fmt.Errorf("address %s is reachable from other hosts: a token or TLS is needed (fix: --token-file FILE)", host)}
	}
	device := "" // the first
	switch name := a.name(); name {
	case tcp.Name:
		d.provider, err = tcp.New(tcp.Config{Listen: net.JoinHostPort(host, "0"), Token: d.token, TLS: d.tls})
	case nic.Name:
		d.provider, err = softAdapters(m, ip)
	case ibverbs.Name:
		d.provider, device, err = adapterAt(ip)
	default:
		err = usageError{fmt.Errorf("unknown provider %q (providers: tcp, ibverbs, soft)", name)}
	}
	if err != nil {
		return nil, err
	}
	d.Device, err = d.provider.Open(device)
	return d, err
}

// softAdapters are the adapters of the software machine, which listen on the loopback
// address.
func softAdapters(m *machine.Machine, ip netip.Addr) (rdma.Provider, error) {
	s, ok := soft.Of(m.GPU)
	if !ok {
		return nil, usageError{fmt.Errorf("provider soft is the software machine's (fix: CULVERT_MACHINE=soft)")}
	}
	if !ip.IsLoopback() {
		return nil, usageError{fmt.Errorf("provider soft reaches this host only, not %v (fix: --provider tcp)", ip)}
	}
	return s.RDMA(), nil
}

func (d *rdmaDevice) close() error { return errors.Join(d.Device.Close(), d.provider.Close()) }

func (d *rdmaDevice) listen(ctx context.Context, addr string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil || d.tls == nil {
		return l, err
	}
	return tls.NewListener(l, d.tls), nil
}

// token is the secret, without the newline that editors add.
func (a *rdmaAccess) token() ([]byte, error) {
	token, from := []byte(env.Get(tokenVariable)), tokenVariable
	if a.tokenFile != "" {
		var err error
		if token, err = os.ReadFile(a.tokenFile); err != nil {
			return nil, err
		}
		token, from = bytes.TrimSuffix(token, []byte("\n")), a.tokenFile
	}
	if len(token) > 0 && len(token) < minToken {
		return nil, usageError{fmt.Errorf("the token in %s has %d bytes, must have at least %d (fix: openssl rand -hex 32 > FILE)", from, len(token), minToken)}
	}
	if a.tokenFile != "" && len(token) == 0 {
		return nil, usageError{fmt.Errorf("%s is empty (fix: openssl rand -hex 32 > %s)", a.tokenFile, a.tokenFile)}
	}
	return token, nil
}

// tlsConfig is for both roles: each end shows a certificate and checks the other's.
func (a *rdmaAccess) tlsConfig() (*tls.Config, error) {
	if a.cert == "" && a.key == "" && a.ca == "" {
		return nil, nil
	}
	if a.cert == "" || a.key == "" || a.ca == "" {
		return nil, usageError{errors.New("TLS needs --tls-cert, --tls-key and --tls-ca")}
	}
	pair, err := tls.LoadX509KeyPair(a.cert, a.key)
	if err != nil {
		return nil, fmt.Errorf("load %s and %s: %w", a.cert, a.key, err)
	}
	text, err := os.ReadFile(a.ca)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM", a.ca)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{pair}, RootCAs: pool, ClientCAs: pool,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	}, nil
}

// forHost is the configuration of a client of a host.
func (d *rdmaDevice) forHost(addr string) *tls.Config {
	if d.tls == nil {
		return nil
	}
	c := d.tls.Clone()
	c.ServerName, _, _ = net.SplitHostPort(addr)
	return c
}

// reaching is the address of this host from which an address is reached. It sends
// nothing.
func reaching(ctx context.Context, addr string) (string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "udp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	host, _, err := net.SplitHostPort(conn.LocalAddr().String())
	return host, err
}

// parseTaskSize reads the size of a task.
func parseTaskSize(s string) (int, error) {
	n, err := human.ParseSize(s)
	if err != nil {
		return 0, err
	}
	if n < 512 || n > 64<<20 {
		return 0, fmt.Errorf("--size %s must be 512 to 64M", s)
	}
	return int(n), nil
}
