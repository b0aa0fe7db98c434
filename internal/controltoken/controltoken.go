// Package controltoken makes what callers of a cache server's control API show. A
// server has a secret, which it shares with its manager alone. From it come the
// manager's own token, and one for each grant, which the manager hands to the client
// that it is for: the server checks that without knowing the grant before.
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
)

// NewSecret returns a secret that nobody can guess.
func NewSecret() string { return rand.Text() + rand.Text() }

// Incarnation is one run of a manager.
type Incarnation struct {
	Epoch uint64        // higher than that of every run before it on the same state
	ID    string        // random; without spaces
	Bound time.Duration // how long it may be silent before a server obeys another
}

// IncarnationHeader is the header of a manager's calls to servers in which it says which
// one it is, as String has it.
const IncarnationHeader = "Redykv-Manager"

// String is what Parse reads.
func (i Incarnation) String() string {
	return fmt.Sprintf("%d %s %d", i.Epoch, i.ID, i.Bound.Milliseconds())
}

// ParseIncarnation reads what String says.
func ParseIncarnation(s string) (i Incarnation, err error) {
	var millis int64
	if n, err := fmt.Sscanf(s, "%d %s %d", &i.Epoch, &i.ID, &millis); n != 3 || millis < 0 {
		return Incarnation{}, fmt.Errorf("manager's incarnation %.80q: %w", s, err)
	}
	i.Bound = time.Duration(millis) * time.Millisecond
	return i, nil
}

// Token is that by which a server knows its manager.
func (i Incarnation) Token(secret string) string { return sum(secret, "manager", i.String()) }

// Terms are what was granted to a client.
type Terms struct {
	Cache, Grant string
	Regions      uint32
	RegionSize   uint64 // bytes
	Cores        uint32 // server threads at most
}

// Token is what a client shows to have what was granted to it, and no more.
func (t Terms) Token(secret string) string {
	number := func(n uint64) string { return strconv.FormatUint(n, 10) }
	return sum(secret, "grant", t.Cache, t.Grant, number(uint64(t.Regions)), number(t.RegionSize), number(uint64(t.Cores)))
}

// Launched is the token by which a manager knows the server of a VM that it has
// launched. The secret is the manager's own.
func Launched(secret, vm string) string { return sum(secret, "launched", vm) }

// Equal compares tokens in a time that says nothing of where they differ.
func Equal(a, b string) bool { return hmac.Equal([]byte(a), []byte(b)) }

// sum is a MAC of the parts. Each comes with its length, so that no two lists of
// parts are the same bytes.
func sum(secret string, parts ...string) string {
	h := hmac.New(sha256.New, []byte(secret))
	var all []byte
	for _, p := range parts {
		all = binary.AppendUvarint(all, uint64(len(p)))
		all = append(all, p...)
	}
	_, _ = h.Write(all) // never fails
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}
