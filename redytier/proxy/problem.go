package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/redytier"
)

// Code is the kind of an error, for programs.
type Code string

// Codes of errors.
const (
	CodeInvalid         Code = "invalid_request"        // 400: it has changed nothing, or bytes of the body are missing
	CodeUnauthenticated Code = "unauthenticated"        // 401: no valid token
	CodeForbidden       Code = "forbidden"              // 403: the token has not the role client
	CodeNotFound        Code = "not_found"              // 404: no such cache, or no such path
	CodeMethod          Code = "method_not_allowed"     // 405
	CodeTooLarge        Code = "too_large"              // 413: the JSON of a request
	CodeMediaType       Code = "unsupported_media_type" // 415: a request's JSON must be application/json
	CodeOutOfRange      Code = "out_of_range"           // 416: beyond the cache
	CodeSLO             Code = "slo_impossible"         // 422: no configuration meets the SLO
	CodeManyCaches      Code = "too_many_caches"        // 429: Options.MaxCaches
	CodeFailed          Code = "failed"                 // 500
	CodeManager         Code = "manager_failed"         // 502: the manager, or a cache server, refuses or fails
	CodeRegion          Code = "region_unavailable"     // 503: memory is lost or unreachable, and not replaced yet
	CodeNoMemory        Code = "no_memory"              // 503: no VM has room for the cache
	CodeBusy            Code = "busy"                   // 503: too many requests, or the proxy ends
	CodeUnavailable     Code = "unavailable"            // 503: the manager, or a cache server, does not answer
	CodeTimeout         Code = "timeout"                // 504: the cache, or its VMs, took too long
)

// status returns the HTTP status of a code.
func (c Code) status() int {
	switch c {
	case CodeInvalid:
		return http.StatusBadRequest
	case CodeUnauthenticated:
		return http.StatusUnauthorized
	case CodeForbidden:
		return http.StatusForbidden
	case CodeNotFound:
		return http.StatusNotFound
	case CodeMethod:
		return http.StatusMethodNotAllowed
	case CodeTooLarge:
		return http.StatusRequestEntityTooLarge
	case CodeMediaType:
		return http.StatusUnsupportedMediaType
	case CodeOutOfRange:
		return http.StatusRequestedRangeNotSatisfiable
	case CodeSLO:
		return http.StatusUnprocessableEntity
	case CodeManyCaches:
		return http.StatusTooManyRequests
	case CodeManager:
		return http.StatusBadGateway
	case CodeRegion, CodeNoMemory, CodeBusy, CodeUnavailable:
		return http.StatusServiceUnavailable
	case CodeTimeout:
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}

// problem is an error with its answer.
type problem struct {
	code    Code
	message string
	written *int64      // of a failed write: bytes from its start that are stored
	headers http.Header // of the answer
	err     error       // cause; may be nil
}

func (p *problem) Error() string { return p.message }
func (p *problem) Unwrap() error { return p.err }

func (p *problem) header(name, value string) {
	if p.headers == nil {
		p.headers = make(http.Header)
	}
	p.headers.Set(name, value)
}

func problemf(code Code, format string, args ...any) *problem {
	err := fmt.Errorf(format, args...)
	return &problem{code: code, message: err.Error(), err: errors.Unwrap(err)}
}

// problemOf returns the answer for an error of a request.
func problemOf(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	return &problem{code: codeOf(err), message: err.Error(), err: err}
}

// codeOf returns the code for an error of a cache.
func codeOf(err error) Code {
	switch {
	case errors.Is(err, redytier.ErrDeleted):
		return CodeNotFound
	case errors.Is(err, redytier.ErrRegionUnavailable):
		return CodeRegion
	case errors.Is(err, context.DeadlineExceeded):
		return CodeTimeout
	}
	return CodeFailed
}

// createProblem returns the answer for an error of a create call, which comes from the manager or
// a cache server.
func createProblem(err error) *problem {
	code := CodeManager
	switch {
	case errors.Is(err, context.DeadlineExceeded), connect.CodeOf(err) == connect.CodeDeadlineExceeded:
		code = CodeTimeout
	case asType[*api.SLOError](err):
		code = CodeSLO
	case connect.CodeOf(err) == connect.CodeInvalidArgument:
		code = CodeInvalid
	case asType[*api.CapacityError](err), connect.CodeOf(err) == connect.CodeResourceExhausted:
		code = CodeNoMemory
	case connect.CodeOf(err) == connect.CodeUnavailable:
		code = CodeUnavailable
	}
	return &problem{code: code, message: err.Error(), err: err}
}

func asType[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
