// Package access authenticates the callers of a manager's control API. A [Guard] checks the
// tokens of calls ([Token], [TokenFile]); [Dial] and [DialWith] return clients, which send
// [Credentials].
package access

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
	"strings"
	"sync/atomic"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
	"github.com/redykv/redykv/manager/api"
)

// Credentials authenticate a client, an operator or a server to a manager, and the manager
// to them. The zero Credentials suffice for a manager without tokens and TLS.
type Credentials struct {
	// Token is sent with each call.
	Token string
	// CA is a file of the certificates, in PEM, that the manager's certificate is checked
	// with. The files are read again for each connection, so that they can be renewed.
	// Default: the system's root certificates.
	CA string
	// Cert and Key are files of the caller's own certificate, in PEM, for a manager that
	// requires one.
	Cert, Key string
	// Insecure permits sending the token to other machines over plain HTTP, where it can be
	// read on the network.
	Insecure bool
}

// Environment variables of Credentials.
const (
	TokenEnv = "REDYKV_MANAGER_TOKEN"
	CAEnv    = "REDYKV_MANAGER_CA"
	CertEnv  = "REDYKV_MANAGER_CERT"
	KeyEnv   = "REDYKV_MANAGER_KEY"
	// InsecureEnv sets Insecure if it is not empty.
	InsecureEnv = "REDYKV_MANAGER_INSECURE"
)

// FromEnv returns the Credentials of the environment. One newline at the end of the token is cut
// off.
func FromEnv() Credentials {
	return Credentials{
		Token: strings.TrimSuffix(os.Getenv(TokenEnv), "\n"), CA: os.Getenv(CAEnv), Cert: os.Getenv(CertEnv), Key: os.Getenv(KeyEnv),
		Insecure: os.Getenv(InsecureEnv) != "",
	}
}

// Env returns the environment variables that FromEnv reads.
func (a Credentials) Env() (env []string) {
	insecure := ""
	if a.Insecure {
		insecure = "1"
	}
	for _, v := range [][2]string{{TokenEnv, a.Token}, {CAEnv, a.CA}, {CertEnv, a.Cert}, {KeyEnv, a.Key}, {InsecureEnv, insecure}} {
		if v[1] != "" {
			env = append(env, v[0]+"="+v[1])
		}
	}
	return env
}

// TLS returns the configuration for connections to the manager, and to servers whose
// certificates have the same authority; nil is the default configuration.
func (a Credentials) TLS() (*tls.Config, error) {
	if a.CA == "" && a.Cert == "" && a.Key == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.CA != "" {
		pool, err := ReadCertificates(a.CA)
		if err != nil {
			return nil, err
		}
		config.RootCAs = pool
	}
	if a.Cert != "" || a.Key != "" {
		cert, err := tls.LoadX509KeyPair(a.Cert, a.Key)
		if err != nil {
			return nil, fmt.Errorf("own certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{cert}
	}
	return config, nil
}

// dialer returns a dial function that reads the files for each connection, as certificates
// are renewed while programs run. While a file cannot be read, the last configuration is
// used, at first config.
func (a Credentials) dialer(config *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	var last atomic.Pointer[tls.Config]
	last.Store(config)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if now, err := a.TLS(); err == nil {
			last.Store(now)
		}
		d := tls.Dialer{NetDialer: api.Dialer, Config: last.Load()}
		return d.DialContext(ctx, network, addr)
	}
}

// ReadCertificates reads a file of certificates in PEM.
func ReadCertificates(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("certificates: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("certificates: %s: no certificate in PEM", file)
	}
	return pool, nil
}

// Client is a client of the control API. Errors of its calls and streams have the types of
// package api.
type Client = managerv1connect.ManagerServiceClient

// Dial returns a client of managers without tokens and TLS at addr: host:ports or URLs,
// separated by commas. The first call connects.
func Dial(addr string) Client {
	client, _ := DialWith(addr, Credentials{}) // fails only for an address that is no URL
	return client
}

// DialWith is Dial with credentials. A host:port is dialled over TLS if they name
// certificates. The client of several managers calls the leader. It repeats a call on the
// others while none answers or leads, for half a minute or until the call's context ends. A
// manager that hangs gets half of the time until the context's deadline.
func DialWith(addr string, c Credentials) (Client, error) {
	config, err := c.TLS()
	if err != nil {
		return nil, fmt.Errorf("manager %s: %w", addr, err)
	}
	scheme, client := "http://", api.HTTPClient
	if config != nil {
		scheme, client = "https://", api.NewHTTPClient(config)
		client.Transport.(*http.Transport).DialTLSContext = c.dialer(config)
	}
	if strings.ContainsAny(c.Token, "\r\n") {
		return nil, errors.New("token has line breaks: want one line")
	}
	return dial(addr, c, scheme, client)
}

// dial is DialWith over an HTTP client. A host:port has the scheme.
func dial(addr string, c Credentials, scheme string, client *http.Client) (Client, error) {
	addrs := strings.Split(addr, ",")
	managers := &several{next: client.Transport, streams: make(map[*streamOf]context.CancelFunc)}
	for i, to := range addrs {
		if to = strings.TrimSpace(to); !strings.Contains(to, "://") {
			to = scheme + to
		}
		addrs[i] = to
		if c.Token != "" && !c.Insecure && readable(to) {
			return nil, fmt.Errorf("manager %s: a token is not sent to another machine over plain HTTP: use https, or set $%s", to, InsecureEnv)
		}
		if len(addrs) == 1 {
			continue
		}
		u, err := url.Parse(to)
		if err != nil || u.Host == "" {
			return nil, fmt.Errorf("manager %q: want a host:port or a URL", to)
		}
		managers.urls = append(managers.urls, u)
	}
	interceptors := []connect.Interceptor{interceptor{c.Token}}
	if len(addrs) > 1 {
		client = &http.Client{Transport: managers}
		interceptors = append(interceptors, managers)
	}
	return managerv1connect.NewManagerServiceClient(client, addrs[0], connect.WithInterceptors(interceptors...)), nil
}

// readable reports whether data sent to a URL can be read on the network.
func readable(to string) bool {
	u, err := url.Parse(to)
	return err != nil || u.Scheme != "https" && !Loopback(u.Host)
}

// Loopback reports whether an address, a host:port, is reached from this machine only. It
// resolves no name but localhost.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// interceptor adds the token to a client's calls, and types to their errors.
type interceptor struct{ token string }

var _ connect.Interceptor = interceptor{}

// WrapUnary implements [connect.Interceptor].
func (c interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if c.token != "" {
			req.Header().Set("Authorization", "Bearer "+c.token)
		}
		r, err := next(ctx, req)
		return r, api.Typed(err)
	}
}

// WrapStreamingClient implements [connect.Interceptor].
func (c interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		if c.token != "" {
			conn.RequestHeader().Set("Authorization", "Bearer "+c.token)
		}
		return typedConn{conn}
	}
}

// typedConn is a stream whose errors are typed.
type typedConn struct{ connect.StreamingClientConn }

func (c typedConn) Send(m any) error    { return api.Typed(c.StreamingClientConn.Send(m)) }
func (c typedConn) Receive(m any) error { return api.Typed(c.StreamingClientConn.Receive(m)) }

// WrapStreamingHandler implements [connect.Interceptor].
func (c interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}
