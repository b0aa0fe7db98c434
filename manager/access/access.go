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
	"sync"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
	"github.com/redykv/redykv/manager/api"
)

// Credentials is how a client, an operator or a server gets into a manager's control API.
// The zero Credentials is enough where the manager asks for nothing.
type Credentials struct {
	// Token is what calls show.
	Token string
	// CA is a file with the certificates, as PEM, by which the manager is known. Files are
	// read again with each connection, so that they may be renewed. Default: those that
	// the system trusts.
	CA string
	// Cert and Key are files with the caller's own certificate, as PEM, where the
	// manager asks for one.
	Cert, Key string
	// Insecure lets the token be shown to other machines over plain HTTP, where whoever
	// listens on the way may have it.
	Insecure bool
}

// Where programs find their Credentials by default.
const (
	TokenEnv = "REDYKV_MANAGER_TOKEN"
	CAEnv    = "REDYKV_MANAGER_CA"
	CertEnv  = "REDYKV_MANAGER_CERT"
	KeyEnv   = "REDYKV_MANAGER_KEY"
	// InsecureEnv is Insecure where it says anything.
	InsecureEnv = "REDYKV_MANAGER_INSECURE"
)

// FromEnv is the Credentials that the environment says.
func FromEnv() Credentials {
	return Credentials{
		Token: os.Getenv(TokenEnv), CA: os.Getenv(CAEnv), Cert: os.Getenv(CertEnv), Key: os.Getenv(KeyEnv),
		Insecure: os.Getenv(InsecureEnv) != "",
	}
}

// Env is what FromEnv reads.
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

// TLS is the configuration for connections to the manager, and to servers whose
// certificates the same authority has signed; nil where the default will do.
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

// dialer connects by what the files say at that moment, for certificates are renewed
// while programs run. As long as they cannot be read, what they said last holds, which
// is config at first.
func (a Credentials) dialer(config *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	var mu sync.Mutex
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		mu.Lock()
		if now, err := a.TLS(); err == nil {
			config = now
		}
		d := tls.Dialer{NetDialer: api.Dialer, Config: config}
		mu.Unlock()
		return d.DialContext(ctx, network, addr)
	}
}

// ReadCertificates reads a file of certificates, as PEM.
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

// Client calls a manager. An [Embedded] manager has one, [Dial] makes one. Errors of
// its calls and streams have the types that this package says.
type Client = managerv1connect.ManagerServiceClient

// Dial returns a client of a manager that asks for nothing, at addr, a host:port or a
// URL. It does not connect: the first call does.
func Dial(addr string) Client { return dial(addr, api.HTTPClient, "") }

// DialWith is Dial for a manager that asks for something. A host:port is reached over
// TLS where the access says by which certificates.
func DialWith(addr string, c Credentials) (Client, error) {
	config, err := c.TLS()
	if err != nil {
		return nil, fmt.Errorf("manager %s: %w", addr, err)
	}
	client := api.HTTPClient
	if config != nil {
		client = api.NewHTTPClient(config)
		client.Transport.(*http.Transport).DialTLSContext = c.dialer(config)
		if !strings.Contains(addr, "://") {
			addr = "https://" + addr
		}
	}
	if strings.ContainsAny(c.Token, "\r\n") {
		return nil, errors.New("token: it has several lines")
	}
	if c.Token != "" && !c.Insecure && overheard(addr) {
		return nil, fmt.Errorf("manager %s: a token is not shown to another machine over plain HTTP: use https, or set $%s", addr, InsecureEnv)
	}
	return dial(addr, client, c.Token), nil
}

// overheard says whether what is sent to addr may be read on the way.
func overheard(addr string) bool {
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	u, err := url.Parse(addr)
	return err != nil || u.Scheme != "https" && !Loopback(u.Host)
}

// Loopback says whether an address, a host:port, is of this machine alone. A name may
// be anything.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

func dial(addr string, client *http.Client, token string) Client {
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	return managerv1connect.NewManagerServiceClient(client, addr, connect.WithInterceptors(interceptor{token}))
}

// interceptor have a client's calls show a token, and its errors be typed: an
// interceptor.
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
