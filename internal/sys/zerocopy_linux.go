package sys

import (
	"encoding/binary"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SO_ZEROCOPY allows MSG_ZEROCOPY as a flag of Send: the kernel sends from the
// caller's pages and says on the error queue when it is done with them
// (Documentation/networking/msg_zerocopy.rst).
const (
	SO_ZEROCOPY  = unix.SO_ZEROCOPY
	MSG_ZEROCOPY = unix.MSG_ZEROCOPY
)

// ZerocopyDone takes one notice from a socket's error queue and tells whether the
// kernel copied after all, as it does on loopback. EAGAIN: there is none yet;
// EBADMSG: it is about something else.
func ZerocopyDone(fd int) (copied bool, err error) {
	var oob [128]byte
	_, n, _, _, err := unix.Recvmsg(fd, nil, oob[:], unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	if err != nil {
		return false, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) == 0 {
		return false, syscall.EBADMSG
	}
	return zerocopyCode(messages[0].Data)
}

// zerocopyCode reads struct sock_extended_err: ee_errno, then ee_origin, ee_type,
// ee_code in a byte each.
func zerocopyCode(b []byte) (copied bool, err error) {
	if len(b) < int(unsafe.Sizeof(unix.SockExtendedErr{})) || binary.NativeEndian.Uint32(b) != 0 || b[4] != unix.SO_EE_ORIGIN_ZEROCOPY {
		return false, syscall.EBADMSG
	}
	return b[6]&unix.SO_EE_CODE_ZEROCOPY_COPIED != 0, nil
}
