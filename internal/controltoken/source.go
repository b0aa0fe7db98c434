package controltoken

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redykv/redykv/internal/api/managerv1"
)

// SourceKey is the key with which a manager with the secret of its own signs the servers that others
// may copy from. They know its public half.
func SourceKey(secret string) ed25519.PrivateKey {
	seed := mac(secret, "sources")
	return ed25519.NewKeyFromSeed(seed[:ed25519.SeedSize])
}

// SignSource sets the signature of a source.
func SignSource(key ed25519.PrivateKey, s *managerv1.PullSource) {
	s.Signature = ed25519.Sign(key, sourceBytes(s))
}

// CheckSource reports a source that was not signed with the key, or whose time is over.
func CheckSource(key ed25519.PublicKey, s *managerv1.PullSource, now time.Time) error {
	if len(key) != ed25519.PublicKeySize || !ed25519.Verify(key, sourceBytes(s), s.GetSignature()) {
		return errors.New("the manager has not signed it")
	}
	if at := time.UnixMilli(s.GetNotAfterUnixMs()); now.After(at) {
		return fmt.Errorf("the manager's signature has ended at %v, it is %v on this machine",
			at.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return nil
}

// sourceBytes is what the signature signs.
func sourceBytes(s *managerv1.PullSource) []byte {
	return joined("redykv pull source", s.GetTransport(), s.GetFabricAddr(), strconv.FormatInt(s.GetNotAfterUnixMs(), 10))
}
