package manager

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// httpClient is for control calls, which their contexts bound. It is shared by
// all clients of this package that have nothing of their own to show, so that idle
// connections are few.
var httpClient = newHTTPClient(nil)

var netDialer = &net.Dialer{Timeout: 5 * time.Second}

func newHTTPClient(config *tls.Config) *http.Client {
	return &http.Client{Transport: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         netDialer.DialContext,
		TLSClientConfig:     config,
		MaxIdleConnsPerHost: 2,
		IdleConnTimeout:     30 * time.Second,
	}}
}

// newHTTPServer serves control APIs: HTTP/1.1, and HTTP/2, without TLS as gRPC
// needs it, too.
func newHTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           h,
		Protocols:         protocols,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// reachable turns the address of a listener on all interfaces into one that can
// be dialled on this machine.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}
