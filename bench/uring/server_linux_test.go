package uring

import (
	"errors"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/must"
)

// A way is how a server of echoes uses a ring.
type way struct {
	poll   bool // multishot poll, then recv(2) and send(2); else RECV and SEND by the ring
	fixed  bool // accepted sockets have places in the ring, and no descriptor
	memory bool // READ_FIXED and WRITE_FIXED with registered memory; else multishot RECV with provided buffers
	zc     bool // SEND_ZC
	flags  uint32
}

const (
	messageSize = 64
	bufferSize  = 4096
	places      = 256 // buffers, and connections with a place each
)

// The kinds of request, in the highest byte of the user data.
const (
	opAccept = iota + 1
	opReady
	opRecv
	opSend
	opClose
	opWake
)

// A server echoes by a ring. One thread runs it.
type server struct {
	t      testing.TB
	ring   *Ring
	way    way
	listen int
	wakeup int    // an eventfd, owned
	memory []byte // of the buffers, owned
	pool   []byte // the ring of provided buffers, owned
	tail   uint16 // of that
	short  bool   // a connection is closed after its first message
	stop   atomic.Bool
	open   map[int32]bool // descriptors, owned; none where sockets have places
	copied int            // messages by SEND_ZC that were copied after all
	kept   int            // those that were not
}

func newServer(t testing.TB, listen int, w way, short bool) *server {
	s := &server{t: t, way: w, listen: listen, short: short, open: map[int32]bool{}}
	s.wakeup = must.Get(sys.Eventfd())(t)
	return s
}

// run serves until end. It is for a goroutine of its own.
func (s *server) run() (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if s.ring, err = Open(1024, 8192, s.way.flags); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.ring.CancelAll(), s.ring.Close(), s.free()) }()
	if err := s.ring.Enable(); err != nil {
		return err
	}
	if err := s.register(); err != nil {
		return err
	}
	s.accept()
	s.push(&SQE{Opcode: sys.IORING_OP_POLL_ADD, Fd: int32(s.wakeup), OpFlags: sys.EPOLLIN, UserData: opWake << 56})
	for !s.stop.Load() {
		if err := s.ring.Wait(-1); err != nil && err != syscall.EINTR && err != syscall.EBUSY {
			return err
		}
		for e := (CQE{}); s.ring.Next(&e); {
			s.complete(&e)
		}
	}
	return nil
}

// end has run return.
func (s *server) end() {
	s.stop.Store(true)
	_, _ = sys.Write(s.wakeup, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

func (s *server) free() error {
	for fd := range s.open {
		sys.Close(int(fd))
	}
	return errors.Join(sys.Munmap(s.memory), sys.Munmap(s.pool), sys.Close(s.wakeup))
}

// register gives the kernel the memory and the places.
func (s *server) register() (err error) {
	const readWrite = sys.PROT_READ | sys.PROT_WRITE
	if s.memory, err = sys.MmapAnonymous(places*bufferSize, readWrite, sys.MAP_PRIVATE); err != nil {
		return err
	}
	if s.pool, err = sys.MmapAnonymous(places*16, readWrite, sys.MAP_PRIVATE); err != nil {
		return err
	}
	if s.way.fixed {
		files := struct { // struct io_uring_rsrc_register, IORING_RSRC_REGISTER_SPARSE
			n, flags   uint32
			_          uint64
			data, tags uint64
		}{n: places, flags: 1}
		if err := sys.IoUringRegister(s.ring.fd, sys.IORING_REGISTER_FILES2, unsafe.Pointer(&files), int(unsafe.Sizeof(files))); err != nil {
			return err
		}
	}
	if s.way.memory {
		iovec := syscall.Iovec{Base: unsafe.SliceData(s.memory), Len: uint64(len(s.memory))}
		return sys.IoUringRegister(s.ring.fd, sys.IORING_REGISTER_BUFFERS, unsafe.Pointer(&iovec), 1)
	}
	buffers := struct { // struct io_uring_buf_reg
		ring    uintptr
		entries uint32
		group   uint16
		flags   uint16
		_       [3]uint64
	}{ring: uintptr(unsafe.Pointer(unsafe.SliceData(s.pool))), entries: places}
	if err := sys.IoUringRegister(s.ring.fd, sys.IORING_REGISTER_PBUF_RING, unsafe.Pointer(&buffers), 1); err != nil {
		return err
	}
	for i := range places {
		s.provide(i)
	}
	return nil
}

// provide gives a buffer back to the kernel: an entry of struct io_uring_buf, and the tail, which lies in the first.
func (s *server) provide(i int) {
	e := unsafe.Pointer(&s.pool[int(s.tail%places)*16])
	*(*uint64)(e) = uint64(uintptr(unsafe.Pointer(&s.memory[i*bufferSize])))
	*(*uint32)(unsafe.Add(e, 8)) = bufferSize
	*(*uint16)(unsafe.Add(e, 12)) = uint16(i)
	s.tail++
	// The tail shares a word, which is little-endian here, with the number of the first entry's buffer.
	first := (*uint32)(unsafe.Pointer(&s.pool[12]))
	atomic.StoreUint32(first, atomic.LoadUint32(first)&0xffff|uint32(s.tail)<<16)
}

func (s *server) push(e *SQE) {
	for !s.ring.Push(e) {
		_ = s.ring.Submit()
	}
}

func (s *server) accept() {
	e := SQE{Opcode: sys.IORING_OP_ACCEPT, Fd: int32(s.listen), IoPrio: sys.IORING_ACCEPT_MULTISHOT, OpFlags: syscall.SOCK_NONBLOCK | syscall.SOCK_CLOEXEC, UserData: opAccept << 56}
	if s.way.fixed {
		e.FileIndex, e.OpFlags = sys.IORING_FILE_INDEX_ALLOC, 0
	}
	s.push(&e)
}

func (s *server) complete(e *CQE) {
	more := e.Flags&sys.IORING_CQE_F_MORE != 0
	at := int32(e.UserData)
	buffer := int(e.UserData >> 32 & 0xffff)
	switch e.UserData >> 56 {
	case opAccept:
		if e.Res >= 0 {
			if !s.way.fixed {
				s.open[e.Res] = true
			}
			s.receive(e.Res)
		}
		if !more {
			s.accept()
		}
	case opReady:
		s.ready(at)
	case opRecv:
		s.received(at, e, more)
	case opSend:
		switch notice := e.Flags&sys.IORING_CQE_F_NOTIF != 0; {
		case notice && uint32(e.Res)&sys.IORING_NOTIF_USAGE_COPIED != 0:
			s.copied++
		case notice:
			s.kept++
		}
		if !more {
			s.sentAll(at, buffer)
		}
	}
}

// receive begins with a connection, or goes on with it.
func (s *server) receive(at int32) {
	e := SQE{Fd: at, UserData: opRecv<<56 | uint64(uint32(at))}
	switch {
	case s.way.poll:
		e.Opcode, e.Len, e.OpFlags, e.UserData = sys.IORING_OP_POLL_ADD, sys.IORING_POLL_ADD_MULTI, sys.EPOLLIN|sys.EPOLLRDHUP, opReady<<56|uint64(uint32(at))
	case s.way.memory:
		e.Opcode, e.Addr, e.Len = sys.IORING_OP_READ_FIXED, s.address(int(at)), bufferSize
	default:
		e.Opcode, e.IoPrio, e.Flags = sys.IORING_OP_RECV, sys.IORING_RECV_MULTISHOT, sys.IOSQE_BUFFER_SELECT
	}
	if s.way.fixed {
		e.Flags |= sys.IOSQE_FIXED_FILE
	}
	s.push(&e)
}

func (s *server) address(buffer int) uint64 {
	return uint64(uintptr(unsafe.Pointer(&s.memory[buffer%places*bufferSize])))
}

// received echoes bytes from the buffer that they have come into.
func (s *server) received(at int32, e *CQE, more bool) {
	if e.Res <= 0 {
		if e.Res == -int32(syscall.ENOBUFS) {
			s.receive(at)
		} else if !more && e.Res != -int32(syscall.ECANCELED) {
			s.close(at)
		}
		return
	}
	buffer := int(e.Flags >> sys.IORING_CQE_BUFFER_SHIFT)
	if s.way.memory {
		buffer = int(at)
	}
	send := SQE{
		Opcode: sys.IORING_OP_SEND, Fd: at, Addr: s.address(buffer), Len: uint32(e.Res), OpFlags: syscall.MSG_NOSIGNAL,
		UserData: opSend<<56 | uint64(buffer)<<32 | uint64(uint32(at)),
	}
	if s.way.memory {
		send.Opcode, send.OpFlags = sys.IORING_OP_WRITE_FIXED, 0
	}
	if s.way.zc {
		send.Opcode, send.IoPrio = sys.IORING_OP_SEND_ZC, sys.IORING_SEND_ZC_REPORT
	}
	if s.way.fixed {
		send.Flags = sys.IOSQE_FIXED_FILE
	}
	s.push(&send)
	if !more && !s.way.memory && !s.short {
		s.receive(at)
	}
}

// sentAll goes on after an echo: its buffer is free.
func (s *server) sentAll(at int32, buffer int) {
	if !s.way.memory {
		s.provide(buffer)
	}
	switch {
	case s.short:
		s.close(at)
	case s.way.memory:
		s.receive(at)
	}
}

// ready echoes by system calls, until a read has given less than was asked.
func (s *server) ready(at int32) {
	var b [bufferSize]byte
	for n := len(b); n == len(b); {
		var err error
		if n, err = sys.Recv(int(at), b[:], sys.MSG_DONTWAIT); err == syscall.EAGAIN {
			return
		}
		if n > 0 {
			_, _ = sys.Send(int(at), b[:n], sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL)
		}
		if n <= 0 || s.short {
			s.close(at)
			return
		}
	}
}

// close cancels the request that waits for a connection, and holds its file, and closes it.
func (s *server) close(at int32) {
	kind := uint64(opRecv)
	if s.way.poll {
		kind = opReady
	}
	delete(s.open, at)
	s.push(&SQE{Opcode: sys.IORING_OP_ASYNC_CANCEL, Fd: -1, Addr: kind<<56 | uint64(uint32(at)), UserData: opClose << 56})
	e := SQE{Opcode: sys.IORING_OP_CLOSE, Fd: at, UserData: opClose << 56}
	if s.way.fixed {
		e.Fd, e.FileIndex = 0, at+1
	}
	s.push(&e)
}
