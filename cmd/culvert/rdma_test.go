package main

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/culvert-io/culvert/internal/remote"
	"github.com/culvert-io/culvert/rdma/ibverbs"
)

// certificates writes a key and a certificate of 127.0.0.1 that is its own authority.
func certificates(t *testing.T) rdmaAccess {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	cert, err := x509.CreateCertificate(nil, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	a := rdmaAccess{provider: "tcp", cert: filepath.Join(dir, "cert"), key: filepath.Join(dir, "key"), ca: filepath.Join(dir, "cert")}
	for file, block := range map[string]*pem.Block{a.cert: {Type: "CERTIFICATE", Bytes: cert}, a.key: {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// TestRDMAOverTLS connects two ends with certificates, and refuses one of a stranger.
func TestRDMAOverTLS(t *testing.T) {
	access := certificates(t)
	dev, err := access.open(nil, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer dev.close()
	exports, err := remote.NewExports([]string{access.cert})
	if err != nil {
		t.Fatal(err)
	}
	defer exports.Close()
	l, err := dev.listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- remote.NewServer(remote.ServerConfig{Device: dev, Exports: exports}).Serve(ctx, l) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	read := func(a rdmaAccess) error {
		far, err := dialRemote(t.Context(), nil, a, remote.ClientConfig{Addr: l.Addr().String(), Tries: 1})
		if err != nil {
			return err
		}
		_, err = far.Open(t.Context(), "cert")
		return errors.Join(err, far.close())
	}
	if err := read(access); err != nil {
		t.Error(err)
	}
	if err := read(certificates(t)); err == nil {
		t.Error("a stranger's certificate was accepted")
	}
	if err := read(rdmaAccess{provider: "tcp"}); err == nil {
		t.Error("a client without TLS was accepted")
	}
}

// TestRDMAProviders names a provider that does not exist, and adapters where there are
// none.
func TestRDMAProviders(t *testing.T) {
	if _, err := (&rdmaAccess{provider: "carrier pigeon"}).open(nil, "127.0.0.1"); err == nil || !strings.Contains(err.Error(), "tcp, ibverbs, soft") {
		t.Errorf("a provider that does not exist: %v", err)
	}
	_, err := (&rdmaAccess{provider: ibverbs.Name}).open(nil, "127.0.0.1")
	if err == nil || !strings.Contains(err.Error(), "provider ibverbs") || !strings.Contains(err.Error(), "fix:") {
		t.Errorf("the loopback address has no adapter: %v", err)
	}
}
