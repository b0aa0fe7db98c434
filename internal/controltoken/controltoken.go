// Package controltoken makes the tokens for a cache server's control API. A server shares a
// secret with its manager only. Tokens are MACs under that secret: one for the manager, and
// one for the terms of each grant, which the manager gives to the client. The server checks a
// grant's token without knowing the grant before. What all servers of a manager check, as the source
// of a copy, is signed with the manager's own key.
package controltoken

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// NewSecret returns a random secret.
func NewSecret() string { return rand.Text() + rand.Text() }

// Incarnation is one run of a manager.
type Incarnation struct {
	Epoch uint64        // higher than that of every run before it on the same state
	ID    string        // random; without spaces
	Bound time.Duration // how long it may be silent before a server obeys another
}

// IncarnationHeader is the header with the manager's incarnation, as formatted by String, in
// its calls to servers.
const IncarnationHeader = "Redykv-Manager"

// String formats the incarnation for ParseIncarnation.
func (i Incarnation) String() string {
	return fmt.Sprintf("%d %s %d", i.Epoch, i.ID, i.Bound.Milliseconds())
}

// ParseIncarnation parses the result of String, and nothing else.
func ParseIncarnation(s string) (i Incarnation, err error) {
	var millis int64
	if _, err := fmt.Sscanf(s, "%d %s %d", &i.Epoch, &i.ID, &millis); err != nil {
		return Incarnation{}, fmt.Errorf("manager's incarnation %.80q: %w", s, err)
	}
	i.Bound = time.Duration(millis) * time.Millisecond
	if i.Bound < 0 || i.String() != s {
		return Incarnation{}, fmt.Errorf("manager's incarnation %.80q: want its epoch, id and bound in milliseconds", s)
	}
	return i, nil
}

// Token is the manager's token for a server with the secret.
func (i Incarnation) Token(secret string) string { return sum(secret, "manager", i.String()) }

// Grant is the client's token for the terms of a grant. It signs all of their fields.
func Grant(secret string, t *managerv1.Terms) string {
	number := func(n uint64) string { return strconv.FormatUint(n, 10) }
	parts := []string{
		"grant", t.GetCacheId(), t.GetGrant(), t.GetVmId(), number(uint64(t.GetRegions())), number(t.GetRegionSize()),
		number(uint64(t.GetCores())), number(t.GetEpoch()), number(uint64(t.GetKeepMs())),
	}
	if t.GetHolder() > 0 || t.GetNotAfterUnixMs() != 0 { // else the token is that of servers that know neither
		parts = append(parts, number(t.GetHolder()), number(uint64(t.GetNotAfterUnixMs())))
	}
	return sum(secret, parts...)
}

// Launched is the token of the server on a VM that the manager launched, under the manager's
// own secret.
func Launched(secret, vm string) string { return sum(secret, "launched", vm) }

// Catalog is the identity of the catalog that has a manager's own secret. It is no secret.
func Catalog(secret string) string { return sum(secret, "catalog")[:16] }

// Equal compares tokens in constant time.
func Equal(a, b string) bool { return hmac.Equal([]byte(a), []byte(b)) }

// sum is a MAC of the parts.
func sum(secret string, parts ...string) string {
	return base64.RawURLEncoding.EncodeToString(mac(secret, parts...))
}

func mac(secret string, parts ...string) []byte {
	h := hmac.New(sha256.New, []byte(secret))
	_, _ = h.Write(joined(parts...)) // never fails
	return h.Sum(nil)
}

// joined has each part with its length, so that different lists differ in bytes.
func joined(parts ...string) (all []byte) {
	for _, p := range parts {
		all = binary.AppendUvarint(all, uint64(len(p)))
		all = append(all, p...)
	}
	return all
}
