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
	"strconv"
)

// NewSecret returns a secret that nobody can guess.
func NewSecret() string { return rand.Text() + rand.Text() }

// Manager is the token by which a server knows its manager.
func Manager(secret string) string { return sum(secret, "manager") }

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
