package objecttest

import (
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
)

// A Proxy is an HTTP proxy that has one server behind it, whatever host it is asked for:
// in plain, or by CONNECT.
type Proxy struct {
	Plain, TLS     string       // host:port of the server without and with TLS
	User, Password string       // that it wants; none if User is ""
	Refuse         int          // the status of every answer, if it is not 0
	Asked          atomic.Int64 // plain requests
	Tunnels        atomic.Int64 // connections
}

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case p.Refuse != 0:
		http.Error(w, "refused by the proxy", p.Refuse)
	case p.User != "" && !p.knows(r):
		w.Header().Set("Proxy-Authenticate", "Basic")
		http.Error(w, "sign in", http.StatusProxyAuthRequired)
	case r.Method == http.MethodConnect:
		p.Tunnels.Add(1)
		p.tunnel(w)
	default:
		p.Asked.Add(1)
		(&httputil.ReverseProxy{Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetURL(&url.URL{Scheme: "http", Host: p.Plain})
			pr.Out.URL.Path, pr.Out.URL.RawPath, pr.Out.Host = r.URL.Path, r.URL.RawPath, r.Host
		}}).ServeHTTP(w, r)
	}
}

func (p *Proxy) knows(r *http.Request) bool {
	as := &http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}
	user, password, ok := as.BasicAuth()
	return ok && user == p.User && password == p.Password
}

// tunnel joins the client's connection with one to the server, until either ends.
func (p *Proxy) tunnel(w http.ResponseWriter) {
	there, err := net.Dial("tcp", p.TLS)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer there.Close()
	here, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer here.Close()
	_, _ = io.WriteString(here, "HTTP/1.1 200 Connection established\r\n\r\n")
	ended := make(chan struct{}, 2)
	join := func(to io.Writer, from io.Reader) {
		_, _ = io.Copy(to, from)
		ended <- struct{}{}
	}
	go join(there, buffered)
	go join(here, there)
	<-ended
}
