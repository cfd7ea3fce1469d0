package sys

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// ParseNotice is parseNotice for tests.
var ParseNotice = parseNotice

// NetstatCounter is netstatCounter for tests.
var NetstatCounter = netstatCounter

// Cmsg is a control message.
func Cmsg(level, kind int32, data []byte) []byte {
	b := make([]byte, unix.CmsgSpace(len(data)))
	var h unix.Cmsghdr
	h.SetLen(unix.CmsgLen(len(data)))
	h.Level, h.Type = level, kind
	copy(b, asBytes(&h))
	copy(b[unix.CmsgLen(0):], data)
	return b
}

func asBytes(h *unix.Cmsghdr) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(h)), unsafe.Sizeof(*h))
}
