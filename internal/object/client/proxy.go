package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"

	"github.com/culvert-io/culvert/internal/env"
	"github.com/culvert-io/culvert/internal/object"
)

const proxyVariables = "HTTP_PROXY, HTTPS_PROXY and NO_PROXY"

// checkProxies checks the addresses of proxies: package net/http asks the store itself if
// it does not understand one. The error has no password.
func checkProxies() error {
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"} {
		text := env.Get(name)
		u, err := url.Parse(text)
		if err != nil || !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, u.Scheme) {
			u, err = url.Parse("http://" + text) // HOST:PORT
		}
		if text != "" && (err != nil || u.Hostname() == "" || u.Path != "" && u.Path != "/") {
			return fmt.Errorf("%s is not the URL of a proxy, such as http://HOST:PORT", name)
		}
	}
	return nil
}

// connected checks the answer of a proxy that was asked for a connection to a store.
func connected(_ context.Context, proxy *url.URL, ask *http.Request, resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusProxyAuthRequired:
		return wantsPassword(proxy)
	}
	return &object.Error{
		Final: resp.StatusCode < 500, Denied: resp.StatusCode == http.StatusForbidden,
		Detail: fmt.Sprintf("the proxy %s makes no connection to %s: it answers %q", address(proxy), ask.Host, resp.Status),
		Fix:    "check " + proxyVariables,
	}
}

func wantsPassword(proxy *url.URL) *object.Error {
	return &object.Error{
		Final: true, Denied: true, Detail: fmt.Sprintf("the proxy %s rejects the user name and password, or there are none", address(proxy)),
		Fix: "http://USER:PASSWORD@HOST:PORT in HTTP_PROXY or HTTPS_PROXY",
	}
}

// address is the URL of a proxy without its password.
func address(proxy *url.URL) string { return proxy.Scheme + "://" + proxy.Host }

// ByProxy completes the error of an answer that a proxy may have given in place of the
// store. Inside TLS it cannot.
func ByProxy(e *object.Error, resp *http.Response) {
	if resp.Request == nil || resp.Request.URL.Scheme == "https" {
		return
	}
	proxy, err := http.ProxyFromEnvironment(resp.Request)
	if err != nil || proxy == nil {
		return
	}
	switch {
	case resp.StatusCode == http.StatusProxyAuthRequired:
		w := wantsPassword(proxy)
		e.Final, e.Denied, e.Detail, e.Fix = w.Final, w.Denied, w.Detail, w.Fix
	case resp.StatusCode == http.StatusForbidden && e.Code == "":
		e.Detail = fmt.Sprintf("the proxy %s, or the server behind it, does not permit it", address(proxy))
	}
}

// notReached is the error of a connection to a proxy; nil if err is another.
func notReached(err error) error {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "proxyconnect" {
		return nil
	}
	return &object.Error{Detail: "the proxy does not answer", Fix: "check " + proxyVariables, Err: op.Err}
}
