//go:build wasip1

package host

import (
	"strconv"
	"strings"
	"unsafe"
)

//go:wasmimport env proxy_get_buffer_bytes
func getBuffer(kind, offset, most uint32, data, size unsafe.Pointer) uint32

//go:wasmimport env proxy_set_buffer_bytes
func setBuffer(kind, start, size uint32, data unsafe.Pointer, n uint32) uint32

//go:wasmimport env proxy_get_property
func getProperty(path unsafe.Pointer, n uint32, data, size unsafe.Pointer) uint32

//go:wasmimport env proxy_set_property
func setProperty(path unsafe.Pointer, n uint32, value unsafe.Pointer, size uint32) uint32

//go:wasmimport env proxy_log
func log(level uint32, text unsafe.Pointer, size uint32) uint32

// space is where the proxy writes bytes. The next call uses it again.
var space [64 << 10]byte

//go:wasmexport proxy_on_memory_allocate
func allocate(size uint32) unsafe.Pointer {
	if size > uint32(len(space)) {
		return nil
	}
	return unsafe.Pointer(&space)
}

//go:wasmexport proxy_abi_version_0_2_1
func version() {}

func buffer(kind uint32) []byte {
	var data, size uint32
	if getBuffer(kind, 0, uint32(len(space)), unsafe.Pointer(&data), unsafe.Pointer(&size)) != 0 {
		return nil
	}
	return space[:size]
}

// Configuration returns the filter's configuration: the text of the key config.
func Configuration() string { return string(buffer(7)) }

// FirstBytes returns the client's first bytes, which are valid until the next call of this package. Call it
// during proxy_on_downstream_data.
func FirstBytes() []byte { return buffer(1) }

// Property returns a property, such as "connection.requested_server_name", or "" if it is unknown.
func Property(name string) string {
	path := strings.ReplaceAll(name, ".", "\x00")
	var data, size uint32
	if getProperty(unsafe.Pointer(unsafe.StringData(path)), uint32(len(path)), unsafe.Pointer(&data), unsafe.Pointer(&size)) != 0 {
		return ""
	}
	return string(space[:size])
}

func set(path, value string) uint32 {
	return setProperty(unsafe.Pointer(unsafe.StringData(path)), uint32(len(path)), unsafe.Pointer(unsafe.StringData(value)), uint32(len(value)))
}

// Allow lets the client go on. A filter that has looked only at a new connection, not at bytes, can return 0
// instead.
func Allow() { set("penstock\x00allow", "") }

// Deny refuses the client. The proxy logs the reason.
func Deny(reason string) { set("penstock\x00deny", reason) }

// Route sends the client to another upstream, if the filter's key `upstreams` lists it.
func Route(upstream string) { set("penstock\x00route", upstream) }

// Next lets the client go on as if the route had not matched.
func Next() { set("penstock\x00next", "") }

// Tag gives the client a tag in the session log.
func Tag(name, value string) { set("penstock\x00tag\x00"+name, value) }

// Streams, for a module that rewrites one of them.
const (
	Downstream = 1 // the bytes of the client, during proxy_on_downstream_data
	Upstream   = 2 // the bytes of the endpoint, during proxy_on_upstream_data
)

// Buffer returns the bytes in hand of a stream, which are valid until the next call of this package.
func Buffer(stream uint32) []byte { return buffer(stream) }

// SetBuffer replaces all bytes in hand. If there are too many it panics, which ends the module.
func SetBuffer(stream uint32, b []byte) {
	if setBuffer(stream, 0, 1<<31, unsafe.Pointer(unsafe.SliceData(b)), uint32(len(b))) != 0 {
		panic("the proxy refuses to replace the bytes in hand")
	}
}

var number [20]byte

// Hold holds back the last n bytes in hand: they come first at the next call. The others go on when the
// function returns 0. Hold panics if nothing is in hand.
func Hold(n int) {
	b := strconv.AppendInt(number[:0], int64(n), 10)
	if set("penstock\x00hold", unsafe.String(&b[0], len(b))) != 0 {
		panic("the proxy refuses to hold the bytes back")
	}
}

// Log writes a line to the proxy's log: a few in a second for all sessions, and one for each session during
// proxy_on_log.
func Log(line string) { log(2, unsafe.Pointer(unsafe.StringData(line)), uint32(len(line))) }
