package manager

import (
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
)

// Client calls a manager. An [Embedded] manager has one, [Dial] makes one.
type Client = managerv1connect.ManagerServiceClient

// httpClient is for control calls, which their contexts bound. It is shared by
// all clients of this package, so that idle connections are few.
var httpClient = &http.Client{Transport: &http.Transport{
	Proxy:               http.ProxyFromEnvironment,
	DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
	MaxIdleConnsPerHost: 2,
	IdleConnTimeout:     30 * time.Second,
}}

// Dial returns a client of the manager at addr, a host:port or a URL. It does
// not connect: the first call does.
func Dial(addr string) Client {
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	return managerv1connect.NewManagerServiceClient(httpClient, addr)
}

// newHTTPServer serves control APIs: HTTP/1.1, and HTTP/2 without TLS as gRPC
// needs it.
func newHTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           h,
		Protocols:         protocols,
		ReadHeaderTimeout: 10 * time.Second,
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
