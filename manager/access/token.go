package access

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redykv/redykv/manager/api"
)

// Role is a set of calls that a token permits.
type Role string

// Roles. An operator may do everything.
const (
	RoleClient   Role = "client"   // allocates caches and uses them
	RoleServer   Role = "server"   // lends memory
	RoleOperator Role = "operator" // may make all calls
)

// Token authenticates callers of a manager.
type Token struct {
	Name    string // for logs and errors
	Roles   []Role
	Expires time.Time // zero: never
	Secret  string    // the token itself; at least minTokenLen bytes
	// VM is the id of the only VM that a server with this token may register, and that no
	// other token may. Empty: every VM that is not another token's.
	VM string
}

// minTokenLen is the minimum of a token's bytes, against guessing.
const minTokenLen = 16

// check reports an invalid token.
func (t Token) check() error {
	if t.Name == "" || len(t.Roles) == 0 {
		return fmt.Errorf("token %.40q: want a name and roles", t.Name)
	}
	if !utf8.ValidString(t.Name) {
		return fmt.Errorf("token %.40q: want a name in UTF-8", t.Name)
	}
	for _, r := range t.Roles {
		if r != RoleClient && r != RoleServer && r != RoleOperator {
			return fmt.Errorf("token %.40q: role %.40q: want client, server or operator", t.Name, r)
		}
	}
	if t.VM != "" && (len(t.VM) > api.MaxIDLen || !slices.Contains(t.Roles, RoleServer)) {
		return fmt.Errorf("token %.40q: VM %.40q: want the id of a server's VM", t.Name, t.VM)
	}
	if len(t.Secret) < minTokenLen {
		return fmt.Errorf("token %.40q has %d bytes: want at least %d", t.Name, len(t.Secret), minTokenLen)
	}
	return nil
}

// TokenSet is a set of tokens, which are found by their secrets. It does not change, and is
// safe for concurrent use.
type TokenSet struct {
	// Tokens are found by the SHA-256 of their secret. The time of a lookup depends on the
	// hash of what a caller sends, from which nothing follows about the secrets.
	secrets    map[[sha256.Size]byte]Token
	names, vms map[string]bool
	file       *TokenFile // which the set was read from; nil: none
}

// NewTokenSet returns the set of tokens, whose secrets differ.
func NewTokenSet(tokens ...Token) *TokenSet {
	s := &TokenSet{secrets: make(map[[sha256.Size]byte]Token), names: make(map[string]bool), vms: make(map[string]bool)}
	for _, t := range tokens {
		s.secrets[sha256.Sum256([]byte(t.Secret))] = t
		s.names[t.Name] = true
		if t.VM != "" {
			s.vms[t.VM] = true
		}
	}
	return s
}

func (s *TokenSet) find(secret string) (Token, bool) {
	t, ok := s.secrets[sha256.Sum256([]byte(secret))]
	return t, ok
}

// latest returns the set after a check of the set's file that is under way.
func (s *TokenSet) latest() *TokenSet {
	if s.file == nil {
		return s
	}
	return s.file.latest()
}

// named reports whether a token of that name exists.
func (s *TokenSet) named(name string) bool { return s.names[name] }

// bound reports whether a token exists that is only for that VM.
func (s *TokenSet) bound(vm string) bool { return s.vms[vm] }

// ParseTokens parses a file of tokens. Each line has a name, roles separated by commas,
// the time when the token expires (never, or RFC 3339), and the token. The role server:ID
// is for one VM only. Empty lines and lines that begin with # are ignored.
func ParseTokens(text string) ([]Token, error) {
	var all []Token
	names, secrets := make(map[string]bool), make(map[string]bool)
	for i, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		t, err := parseToken(fields)
		if err == nil {
			err = t.check()
		}
		if err == nil && (names[t.Name] || secrets[t.Secret]) {
			err = fmt.Errorf("token %.40q: its name or its secret is in the file already", t.Name)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		all, names[t.Name], secrets[t.Secret] = append(all, t), true, true
	}
	if len(all) == 0 {
		return nil, errors.New("no tokens: want a line of name, roles, expiry and token")
	}
	return all, nil
}

func parseToken(fields []string) (Token, error) {
	if len(fields) != 4 {
		return Token{}, fmt.Errorf("%d fields: want name, roles, expiry and token", len(fields))
	}
	t := Token{Name: fields[0], Secret: fields[3]}
	for r := range strings.SplitSeq(fields[1], ",") {
		if id, ok := strings.CutPrefix(r, string(RoleServer)+":"); ok && id != "" {
			if t.VM != "" {
				return t, fmt.Errorf("token %.40q: it can be bound to one VM only", t.Name)
			}
			r, t.VM = string(RoleServer), id
		}
		t.Roles = append(t.Roles, Role(r))
	}
	if fields[2] != "never" {
		var err error
		if t.Expires, err = time.Parse(time.RFC3339, fields[2]); err != nil {
			return t, fmt.Errorf("token %.40q: expiry %.40q: want never, or a time such as 2030-12-31T00:00:00Z", t.Name, fields[2])
		}
	}
	return t, nil
}
