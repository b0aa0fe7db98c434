package smb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	smb2 "github.com/cloudsoda/go-smb2"

	"github.com/redykv/redykv/device"
)

// Errors that a caller can act on. They are wrapped with the place or the file.
var (
	// ErrLocked means that another Device, here or elsewhere, has the directory open.
	ErrLocked = errors.New("smb: directory is in use")
	// ErrFormat means that the directory was written by a version that this one cannot
	// read, with other options, or that files of it are damaged or missing.
	ErrFormat = errors.New("smb: unknown format")
	// ErrDoubt means that a connection broke while the server had bytes that were not
	// durable. Writing, and reading such bytes, fails until Start.
	ErrDoubt = errors.New("smb: connection lost during writes, the server may lack some")
	// ErrDisconnected means that there is no connection to the server.
	ErrDisconnected = errors.New("smb: no connection")
)

// Statuses of the protocol, of [MS-ERREF] 2.3.1.
const (
	statusSharingViolation      = 0xC0000043
	statusDeletePending         = 0xC0000056
	statusNetworkNameDeleted    = 0xC00000C9
	statusFileClosed            = 0xC0000128
	statusUserSessionDeleted    = 0xC0000203
	statusNetworkSessionExpired = 0xC000035C
	statusDiskFull              = 0xC000007F
)

// shortages are the statuses of a server that is short of memory, resources, open files, or
// server resources.
var shortages = []uint32{0xC0000017, 0xC000009A, 0xC000011F, 0xC0000205}

// marked marks the error of a write that may be repeated. A write in doubt may not be.
func marked(err error) error {
	switch {
	case err == nil || errors.Is(err, ErrDoubt):
		return err
	case answered(err, statusDiskFull):
		return fmt.Errorf("%w: %w", device.ErrNoSpace, err)
	case errors.Is(err, ErrDisconnected) || answered(err, shortages...):
		return fmt.Errorf("%w: %w", device.ErrTransient, err)
	}
	return err
}

// answered reports whether err is the server's answer with one of some statuses.
func answered(err error, statuses ...uint32) bool {
	var answer *smb2.ResponseError
	return errors.As(err, &answer) && slices.Contains(statuses, answer.Code)
}

// refused reports whether the server answered that it does not support the request.
func refused(err error) bool {
	var answer *smb2.ResponseError
	return errors.As(err, &answer) && !answered(err, shortages...) || errors.Is(err, os.ErrPermission)
}

// gone reports whether a file does not exist, or is being deleted.
func gone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || answered(err, statusDeletePending)
}

// connectionLost reports whether err is that of a connection, and not an answer to the
// request: then the result of the request is unknown.
func connectionLost(err error) bool {
	var transport *smb2.TransportError
	var invalid *smb2.InvalidResponseError
	return errors.As(err, &transport) || errors.As(err, &invalid) || errors.Is(err, ErrDisconnected) ||
		errors.Is(err, context.Canceled) || // of requests that wait when the link is dropped
		answered(err, statusNetworkNameDeleted, statusFileClosed, statusUserSessionDeleted, statusNetworkSessionExpired)
}
