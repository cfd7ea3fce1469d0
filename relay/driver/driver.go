// Package driver has the contracts between a relay.Driver, which drives sessions on an event loop, and a program that puts
// something of its own into one of them: a protocol over a socket ([Layer]), a lock in front of bytes ([Gate]), a change of bytes ([Rewriter],
// [Transform]), an observer of a mirror ([MirrorObserver]), or another carrier of the whole session ([Carrier]). A program that joins
// connections by goroutines, or drives plain sessions on a loop, needs none of them.
package driver

import (
	"errors"
	"fmt"
	"net"
	"time"
)

// A Carrier carries a session on a loop otherwise than by its sockets, such as by a program in the kernel that
// translates packets. Its methods are called on the loop's goroutine, and must not wait.
type Carrier interface {
	// Arm is called when the session holds no byte and waits for both sides. From then on the Carrier may
	// take it at any moment.
	Arm()
	// Disarm is called before a socket is touched, and reports whether the session is still with the
	// loop. If not, the Carrier has it, and relay.Driven.Return may bring it back.
	Disarm() bool
	// Leave follows a Disarm that has reported false: both descriptors belong to the Carrier, and
	// leave the loop when they are closed. It calls relay.Driven.Finish or relay.Driven.FinishError
	// at the end.
	Leave(a, b int)
	// Progress returns the bytes that Carriers have delivered, over all times that one had the
	// session, and how long nothing has moved.
	Progress() (aToB, bToA int64, idle time.Duration)
	// Quiet is relay.Driven.Quiet of a session that has left.
	Quiet() bool
	// Reset ends a session that has left: both sides are reset, and relay.Driven.Finish is called soon after.
	Reset()
	// Return is called for a session that has left and was idle for too long, so that it comes back by relay.Driven.Return and ends
	// with an end of file of both sides. False: it cannot, and is reset.
	Return() bool
}

// An Obstacle is why no [Carrier] may have a session, for as long as it lasts.
type Obstacle uint8

const (
	// NoObstacle: a Carrier may have it.
	NoObstacle Obstacle = iota
	// ObstacleSocket: an end is no TCP socket.
	ObstacleSocket
	// ObstacleLayer: a [Layer] is spoken at an end.
	ObstacleLayer
	// ObstacleBandwidth: it has a limit of bandwidth.
	ObstacleBandwidth
	// ObstacleMirror: a relay.Mirror gets its bytes, or did.
	ObstacleMirror
	// ObstacleRewrite: a [Rewriter] changes its bytes.
	ObstacleRewrite
	// ObstacleEnd: a side has ended.
	ObstacleEnd
)

// A Layer is a protocol that is spoken over one socket of a session on a loop, such as TLS: the session moves
// what the protocol carries. Its methods are called on the loop's goroutine and never wait. A *tls.Conn after
// its handshake has all methods of a Layer except Over, if the connection beneath it can be replaced.
type Layer interface {
	// Over is called once, before the other methods: from now on the layer reads and writes beneath, in place of
	// the connection that it was made over. A Read of beneath returns syscall.EAGAIN where it would wait. A
	// Write takes all bytes, and keeps the bytes for which the socket has no room. Deadlines have no effect.
	Over(beneath net.Conn)
	// Read implements io.Reader. p belongs to the loop, and is not cleared: a Layer that returns more bytes than it has
	// written passes on bytes of other sessions. It returns syscall.EAGAIN if beneath did and there is nothing to
	// return yet, and goes on from there when it is called again. io.EOF is the peer's orderly end.
	Read(p []byte) (int, error)
	// Write implements io.Writer.
	Write(p []byte) (int, error)
	// CloseWrite says to the peer that no more comes. Read goes on.
	CloseWrite() error
}

// A Gate holds the bytes of one side of a session on a loop back until the other side has answered, or until they were looked at:
// relay.Socket.Gate. They stay in the socket's queue meanwhile. Timeouts, accounts and ends are as in any session: a peer's end of file or
// reset in front of a gate ends its direction as usual. The session is not given to a [Carrier] before its gate is open. Its methods are called
// on the loop's goroutine, must not wait, and borrow their bytes for the call.
type Gate interface {
	// Answered is called with the bytes of the other side as they are read, and without any at the end
	// of file. They go on whatever it returns. It is called until the gate is open.
	Answered(b []byte) GateVerdict
	// Pass is called before a byte is read that it has not let pass yet: when there may be one, and again when more have come or Answered has
	// returned GateLooks. ahead is what is left of relay.Socket.Ahead; if that is empty, the bytes are in the queue of the socket fd, which
	// Pass may peek at, and must not consume. ended says that the peer has sent its last byte. It returns how many bytes pass, which need not
	// have come yet; 0: none, until there is another event; [GateOpen]: all, for good. An error is the end of the session, as an error of a
	// read is.
	Pass(fd int, ahead []byte, ended bool) (n int, err error)
	// Close is called once, and no other method after it: when the gate is open for good, or the session has ended.
	Close()
}

// GateOpen is the result of [Gate.Pass] that opens a gate for good.
const GateOpen = -1

// A GateVerdict is what a [Gate] makes of the answer.
type GateVerdict uint8

const (
	// GateHears: Answered is to be called with the bytes that follow.
	GateHears GateVerdict = iota
	// GateLooks: Pass is to decide about the other side's bytes now, and Answered is called with the bytes that follow.
	GateLooks
	// GateOpens: the gate is open for good.
	GateOpens
)

// A Rewriter changes the bytes that one side of a session on a loop sends, before the other side and a mirror get
// them. So they are copied, whatever the engine, and relay.FallbackRewrite is counted. A Rewriter may hold back bytes that it
// cannot decide about, until more come, or none come for relay.Socket.Hold. It is the state of one stream. Its methods are called
// on the loop's goroutine, must not wait, and return soon. An error of theirs, and a result that they may not return
// ([ErrRewriter]), end the session with relay.ReasonError; both sides are reset.
type Rewriter interface {
	// Room is how many bytes of space Rewrite needs in front of its input: at most 32 KiB. It is called once, at the start.
	Room() int
	// Most is the largest number of bytes that Rewrite takes at once, at least 1. Choose it so that Rewrite returns
	// soon. Others have their turn then. It is called once, at the start.
	Most() int
	// Rewrite takes the bytes that come next, b[at:], and returns the bytes that go on now, b[from:to]. It may
	// write anywhere in b, which is borrowed, and is zero before at. An error ends the session.
	Rewrite(b []byte, at int) (from, to int, err error)
	// Release returns all bytes that are held back as b[from:to]. b has Room bytes, which are zero. It is called if
	// nothing has come for relay.Socket.Hold, and then Rewrite may be called again, and at the end of the source's bytes.
	Release(b []byte) (from, to int, err error)
	// Held is how many bytes are held back: at most Room, and none after Release.
	Held() int
}

// ErrRewriter is the cause of a session's end when its [Rewriter] has returned a result that it may
// not return. The error says which.
var ErrRewriter = errors.New("invalid result of a Rewriter")

// A Transform changes the bytes that one side of a session on a loop sends, as a [Rewriter] does, by work that may take long. The work is
// done on other goroutines; meanwhile the side is not read, and the loop's other sessions have their turns. What goes on need not be as
// long as the bytes that came. Its methods are called on the loop's goroutine, and return soon.
type Transform interface {
	// Begin is called once, before the others. wake makes the loop call Take; any goroutine may call
	// wake, at any time.
	Begin(wake func())
	// Most is how many bytes the next Put takes, at least 1.
	Most() int
	// Put takes the bytes that come next, which are borrowed for the call. Without any it is called when nothing has come for
	// relay.Socket.Hold although bytes are held back.
	Put(b []byte)
	// End is called at the end of the source's bytes, once.
	End()
	// Take puts bytes that go on into b, which is zero, and returns how many. It is called after each Put and End, after each wake, and
	// again after it has returned bytes. If busy, work is under way that ends with a wake: neither Put nor End is called before. An
	// error ends the session with relay.ReasonError; both sides are reset.
	Take(b []byte) (n int, busy bool, err error)
	// Held is how many bytes Take has not returned yet: none after End, once Take returns none and is not busy.
	Held() int
	// Close is called once, at the end of the session, with work under way or not. No other call comes after it.
	Close()
}

// A MirrorObserver sees what the source of a mirrored session sends, and both answers: the
// session's other side's, and the shadow's. Its methods are called on the loop's
// goroutine, must not wait, and borrow their bytes for the call.
type MirrorObserver interface {
	// Sent is called with bytes of the source that the other side has taken.
	Sent(b []byte)
	// Skipped is called with the number of bytes of the source that were spliced, and that no
	// observer sees. They come between the bytes of Sent.
	Skipped(n int)
	// SentAll is called at the end of file of the source, if the other side has not ended its
	// answers before. Many servers then drop the answers that they have not sent yet, so the
	// point where the answers stop says nothing about the shadow.
	SentAll()
	// Answered is called with bytes of the other side that the source has taken, and
	// ShadowAnswered with bytes of the shadow. Neither waits for the other: answers may come
	// before the shadow is connected. They return false if the observer wants no more.
	Answered(b []byte) (more bool)
	ShadowAnswered(b []byte) (more bool)
	// Ended is called once, and no other method after it: when the observer wants no more, when
	// the answers of one side have ended otherwise than by its end of file, or both have ended.
	// complete says that both were seen from the first byte to the end of file, and that the
	// shadow got all that the other side did. That may be after relay.MirrorOwner.MirrorEnded.
	Ended(complete bool)
}

// MirrorResult is the result of a mirror.
type MirrorResult struct {
	Reason MirrorReason
	// Teed and Copied are the bytes that the shadow's socket took. The mirror has duplicated Teed bytes by tee(2), and never had
	// them in the memory of this process; it has written Copied bytes from there.
	Teed, Copied int64
	// Undelivered is how many of the bytes given to the mirror its shadow has not taken. Bytes that
	// came after the mirror's end do not count.
	Undelivered int64
	// Answered is how many bytes the shadow has answered.
	Answered int64
	Err      error // of Connect, Reset and Error; else nil
}

// MirrorReason is why a mirror ended.
type MirrorReason uint8

const (
	// MirrorNone: it has not ended.
	MirrorNone MirrorReason = iota
	// MirrorComplete: the shadow got all bytes, and the source's end.
	MirrorComplete
	// MirrorBehind: its pipes could not take all bytes that the session had read.
	MirrorBehind
	// MirrorLate: bytes were undelivered for the patience of the mirror, or in the kernel; or the shadow has not got
	// everything, or was not even connected, when the patience was over after the session's end.
	MirrorLate
	// MirrorConnect: the shadow could not be connected to.
	MirrorConnect
	// MirrorReset: the shadow has reset its connection, or closed it.
	MirrorReset
	// MirrorPipe: no pipe was available for bytes that are spliced.
	MirrorPipe
	// MirrorCut: the source was reset, or the session ended otherwise than by the source's end
	// of file; the shadow is reset.
	MirrorCut
	// MirrorError: reading or writing failed otherwise.
	MirrorError
)

var mirrorReasonNames = [...]string{"running", "complete", "behind", "late", "connect", "reset", "pipe", "cut", "error"}

// String returns the reason in one word.
func (r MirrorReason) String() string {
	if int(r) < len(mirrorReasonNames) {
		return mirrorReasonNames[r]
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}
