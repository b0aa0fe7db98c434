package controltoken

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// SourceKey is the key with which a manager signs the servers that others may copy from.
type SourceKey struct{ private ed25519.PrivateKey }

// NewSourceKey returns the key of managers with this secret of their own.
func NewSourceKey(secret string) SourceKey {
	seed := mac(secret, "sources")
	return SourceKey{ed25519.NewKeyFromSeed(seed[:ed25519.SeedSize])}
}

// Public returns the half of the key that servers know.
func (k SourceKey) Public() ed25519.PublicKey { return k.private.Public().(ed25519.PublicKey) }

// Sign sets the signature of a source.
func (k SourceKey) Sign(s *managerv1.PullSource) {
	s.Signature = ed25519.Sign(k.private, sourceBytes(s))
}

// CheckSource reports a source that was not signed with the key, or whose time is over.
func CheckSource(key ed25519.PublicKey, s *managerv1.PullSource, now time.Time) error {
	if len(key) != ed25519.PublicKeySize || !ed25519.Verify(key, sourceBytes(s), s.GetSignature()) {
		return errors.New("the manager has not signed it")
	}
	return CheckEnd("the manager's signature has", s.GetNotAfterUnixMs(), now)
}

// CheckEnd reports that what was signed has ended, at a time in milliseconds since 1970. what is how the
// error begins, with its verb.
func CheckEnd(what string, unixMs int64, now time.Time) error {
	at := time.UnixMilli(unixMs)
	if !now.After(at) {
		return nil
	}
	return fmt.Errorf("%s ended at %v, it is %v on this machine", what, at.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
}

// sourceBytes is what the signature signs.
func sourceBytes(s *managerv1.PullSource) []byte {
	return joined("redykv pull source", s.GetTransport(), s.GetFabricAddr(), strconv.FormatInt(s.GetNotAfterUnixMs(), 10))
}
