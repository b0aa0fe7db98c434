package device

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// ErrNoObject means that the device has no object of that name.
var ErrNoObject = errors.New("device: no such object")

// Objects is the part of a Device that stores large named objects beside the log: the files
// of a checkpoint. Objects do not depend on Start and Truncate. Names are as for metadata,
// see [CheckName], but a separate set. All methods are safe for concurrent use.
type Objects interface {
	// CreateObject begins an object. It gets its name when Commit of the writer returns
	// nil; until then an older object of that name stays. Volatile devices return
	// errors.ErrUnsupported.
	CreateObject(name string) (ObjectWriter, error)
	// OpenObject opens a committed object for reading, or returns ErrNoObject. An open
	// object stays readable when it is removed or replaced.
	OpenObject(name string) (Object, error)
	// RemoveObject durably removes an object, or returns ErrNoObject.
	RemoveObject(name string) error
	// ListObjects returns the names of the committed objects in order.
	ListObjects() ([]string, error)
}

// ObjectWriter writes an object. It belongs to one goroutine, and ends with Commit or
// Abort. A crash removes an object that was not committed.
type ObjectWriter interface {
	// Write appends to the object. After an error call Abort.
	io.Writer
	// Commit makes the object durable and gives it its name, atomically. After an error
	// the name stands for the older object, if there was one, or for the new one, if only
	// the last step failed; never for a part.
	Commit() error
	// Abort drops the object. After Commit it does nothing.
	Abort() error
}

// Object is a committed object, for any number of goroutines.
type Object interface {
	io.ReaderAt
	io.Closer
	// Size is the object's length in bytes.
	Size() int64
}

// reservedSuffix is the suffix of unfinished files of devices.
const reservedSuffix = ".tmp"

// CheckName returns an error if name is not valid for metadata or an object. A name has 1
// to 128 letters, digits, dots, dashes and underscores, and does not end in
// ".tmp".
func CheckName(name string) error {
	odd := func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", r)
	}
	if name == "" || len(name) > 128 || strings.ContainsFunc(name, odd) || strings.HasSuffix(name, reservedSuffix) {
		return fmt.Errorf("device: name %q: want 1 to 128 letters, digits, '.', '-' and '_', not ending in %s",
			name, reservedSuffix)
	}
	return nil
}

// NoObjects implements Objects for a device without objects, which embeds it.
type NoObjects struct{}

func (NoObjects) CreateObject(name string) (ObjectWriter, error) {
	return nil, fmt.Errorf("device: object %q on a volatile device: %w", name, errors.ErrUnsupported)
}

func (NoObjects) OpenObject(name string) (Object, error) {
	return nil, fmt.Errorf("%q: %w", name, ErrNoObject)
}

func (NoObjects) RemoveObject(name string) error {
	return fmt.Errorf("%q: %w", name, ErrNoObject)
}

func (NoObjects) ListObjects() ([]string, error) { return nil, nil }
