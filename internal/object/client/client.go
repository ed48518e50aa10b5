// Package client is HTTP as object stores need it: connections that are counted and
// kept, answers to range requests that are checked before a byte of them is used.
package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/culvert-io/culvert/internal/env"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/internal/object/fetch"
)

// The variables that limit what one process does to a store.
const (
	ConnectionsVariable = "CULVERT_OBJECT_CONNECTIONS"
	RateVariable        = "CULVERT_OBJECT_RATE"
	AttemptsVariable    = "CULVERT_OBJECT_ATTEMPTS"
)

// Limits reads the limits from the environment.
func Limits() (cfg fetch.Config, err error) {
	for name, to := range map[string]*int{ConnectionsVariable: &cfg.Connections, AttemptsVariable: &cfg.Attempts} {
		text := env.Get(name)
		if text == "" {
			continue
		}
		if *to, err = strconv.Atoi(text); err != nil || *to < 1 || *to > 4096 {
			return cfg, fmt.Errorf("%s=%s: want a number from 1 to 4096", name, text)
		}
	}
	if text := env.Get(RateVariable); text != "" {
		if cfg.Rate, err = human.ParseSize(text); err != nil || cfg.Rate == 0 {
			return cfg, fmt.Errorf("%s=%s: want bytes per second, such as 500M", RateVariable, text)
		}
	}
	return cfg, nil
}

// errDowngrade keeps what was asked for by TLS from being sent without.
var (
	errDowngrade = errors.New("redirected from https to http")
	errRedirects = fmt.Errorf("redirected more than %d times", maxRedirects)
)

const maxRedirects = 5

// New returns a client whose connections the pool counts. It follows redirects if
// follow is set. HTTP/1.1 only: its bodies are read straight into the caller's memory,
// and many connections are faster than one.
func New(pool *fetch.Pool, follow bool) (*http.Client, error) {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	t := &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			pool.Connected()
			if tcp, ok := c.(*net.TCPConn); ok {
				return &bodyConn{TCPConn: tcp, least: 1}, nil
			}
			return c, nil
		},
		MaxIdleConns: pool.Connections(), MaxIdleConnsPerHost: pool.Connections(),
		IdleConnTimeout: 30 * time.Second, TLSHandshakeTimeout: 10 * time.Second,
		DisableCompression: true, // bytes as they are stored
		ReadBufferSize:     headBytes,
		TLSNextProto:       map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
	if !env.Secure() {
		if err := checkProxies(); err != nil {
			return nil, err
		}
		t.Proxy, t.OnProxyConnectResponse = http.ProxyFromEnvironment, connected
	}
	if file := env.Get("AWS_CA_BUNDLE"); file != "" {
		roots, err := bundle(file)
		if err != nil {
			return nil, err
		}
		t.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	c := &http.Client{Transport: t, CheckRedirect: checkRedirect}
	if !follow {
		c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	return c, nil
}

func bundle(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("AWS_CA_BUNDLE: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("AWS_CA_BUNDLE: %s has no certificates in PEM format", file)
	}
	return roots, nil
}

// checkRedirect also removes what another server must not know: the address that was
// asked for, whose query may be a signature, and the password, which package net/http
// sends to other ports and to subdomains.
func checkRedirect(req *http.Request, via []*http.Request) error {
	last := via[len(via)-1].URL
	switch {
	case len(via) > maxRedirects:
		return errRedirects
	case last.Scheme == "https" && req.URL.Scheme != "https":
		return errDowngrade
	}
	req.Header.Del("Referer")
	for _, before := range via {
		if !sameServer(before.URL, req.URL) {
			req.Header.Del("Authorization")
		}
	}
	return nil
}

// sameServer reports whether two addresses are of one server: the same host and port, or
// those of http and https.
func sameServer(a, b *url.URL) bool {
	return a.Host == b.Host && a.Scheme == b.Scheme ||
		a.Hostname() == b.Hostname() && a.Scheme == "http" && a.Port() == "" && b.Scheme == "https" && b.Port() == ""
}

// Cause is the error of a request without its URL, which may have secrets. A
// certificate that is not trusted, or a redirect that is not followed, is the same when
// asked again.
func Cause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err
	}
	if strings.HasPrefix(err.Error(), "failed to parse Location header") { // and has it
		return &object.Error{Final: true, Detail: "the server redirects to something that is no URL"}
	}
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	if errors.Is(err, http.ErrSchemeMismatch) {
		return &object.Error{Final: true, Detail: "the server has no TLS at this port", Fix: "http:// instead of https://, or another port"}
	}
	if untrusted || plain || errors.Is(err, errDowngrade) || errors.Is(err, errRedirects) {
		return &object.Error{Final: true, Err: err}
	}
	if proxy := notReached(err); proxy != nil {
		return proxy
	}
	return err
}
