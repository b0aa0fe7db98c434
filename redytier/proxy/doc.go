// Package proxy makes Redy caches usable from any language (R15), by HTTP/1.1 and HTTP/2. A
// [Proxy] is a client of a manager. It creates caches for its own callers and deletes them when
// it ends.
//
//	POST   /v1/caches               create a cache: a JSON object, see Request
//	GET    /v1/caches               the caches
//	GET    /v1/caches/{id}          one cache, and how many of its regions are in which state
//	DELETE /v1/caches/{id}          delete it
//	GET    /v1/caches/{id}/regions  its regions, 1000 at a time; ?from=ADDRESS continues
//	GET    /v1/caches/{id}/bytes    read the bytes of the header Range, or all
//	PUT    /v1/caches/{id}/bytes    write the bytes of the header Content-Range, or all
//	GET    /healthz                 200 while the process is alive; needs no token
//
// Range is one range in bytes, as in RFC 9110: "bytes=0-4095". A range that begins within the
// cache ends with it. Content-Range is "bytes 0-4095/*", with the cache's capacity or * as
// length.
//
// A write is acknowledged, by status 204, when all of its bytes are in the memory of the cache's
// servers. A read that begins afterwards returns them, unless that memory is lost. A write that
// fails, or whose caller goes away, may have taken effect in part; its error says how many bytes
// from its start are stored. Writing the same bytes again is safe. Requests that overlap in time
// have no order, and of a long one each piece is read or written for itself.
//
// Lost memory answers 503 with a Retry-After until it is replaced, and is zeros then, since a
// proxy has no copy. The header Redykv-Losses of a read and of a write counts the losses of the
// memory of its bytes: a read returns what was written if the numbers of a read and of a write
// of the same range are equal. 0 says that nothing was lost since the cache was created. A read
// during which memory is lost does not mix old and new bytes: the connection is cut off.
//
// Errors are a JSON object, {"error": {"code": "out_of_range", "message": "..."}}: see Code.
//
// Memory for bytes on their way is bounded by Options.Memory: a request has one or two pieces of
// 256 KiB, and waits for the first. A caller that takes or sends no piece within Options.Timeout
// is disconnected.
package proxy
