package api

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// HTTPClient is the client for control calls with the default TLS settings. Calls are
// bounded by their contexts.
var HTTPClient = NewHTTPClient(nil)

// Dialer connects control calls.
var Dialer = &net.Dialer{Timeout: 5 * time.Second}

// NewHTTPClient returns a client for control calls. A nil config uses the default TLS settings.
func NewHTTPClient(config *tls.Config) *http.Client {
	return &http.Client{Transport: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         Dialer.DialContext,
		TLSClientConfig:     config,
		MaxIdleConnsPerHost: 2,
		IdleConnTimeout:     30 * time.Second,
	}}
}

// NewHTTPServer returns a server for control APIs: HTTP/1.1, and HTTP/2 with and without
// TLS, which gRPC needs.
func NewHTTPServer(h http.Handler, log *slog.Logger) *http.Server {
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
