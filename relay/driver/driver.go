// Package driver has the contracts between a relay.Driver, which drives sessions on an event loop, and a program that
// adds its own code to a session: a protocol over a socket ([Layer]), a lock in front of bytes ([Gate]), a change of
// bytes ([Transform]), an observer of a mirror ([MirrorObserver]), or another carrier of the whole session
// ([Carrier]). A program that joins connections by goroutines, or drives plain sessions on a loop, needs none of them.
package driver

import (
	"errors"
	"fmt"
	"net"
	"time"
)

// A Carrier carries the bytes of a session by other means than the loop's sockets, such as a program in the
// kernel that translates packets. Its methods are called on the loop's goroutine, and must not wait.
type Carrier interface {
	// Arm is called when the session holds no byte and waits for both sides. From then on the Carrier may take
	// the session at any moment.
	Arm()
	// Disarm is called before a socket is touched, and reports whether the session is still with the loop. If
	// not, the Carrier has it, and relay.Driven.Return may bring it back.
	Disarm() bool
	// Leave is called after Disarm has returned false. From now on both descriptors belong to the Carrier; they
	// leave the loop when they are closed. At the end the Carrier calls relay.Driven.Finish or
	// relay.Driven.FinishError.
	Leave(a, b int)
	// Progress returns the bytes that Carriers have delivered in the whole life of the session, and the time
	// since the last byte moved.
	Progress() (aToB, bToA int64, idle time.Duration)
	// Quiet is relay.Driven.Quiet for a session that has left.
	Quiet() bool
	// Reset ends a session that has left: both sides are reset, and the Carrier calls relay.Driven.Finish soon
	// after.
	Reset()
	// Return is called when a session that has left was idle for too long: the Carrier should bring it back by
	// relay.Driven.Return, to end with an end of file of both sides. If Return reports false, the session
	// cannot come back and is reset.
	Return() bool
}

// An Obstacle is the reason why no [Carrier] may have a session at present.
type Obstacle uint8

const (
	// NoObstacle: a Carrier may have the session.
	NoObstacle Obstacle = iota
	// ObstacleSocket: an end is no TCP socket.
	ObstacleSocket
	// ObstacleLayer: a [Layer] is spoken at an end.
	ObstacleLayer
	// ObstacleBandwidth: the session has a limit of bandwidth.
	ObstacleBandwidth
	// ObstacleMirror: a relay.Mirror gets the session's bytes, or did.
	ObstacleMirror
	// ObstacleRewrite: a [Transform] changes the session's bytes.
	ObstacleRewrite
	// ObstacleEnd: a side has ended.
	ObstacleEnd
)

// A Layer is a protocol that is spoken over one socket of a session on a loop, such as TLS: the session moves
// what the protocol carries. Its methods are called on the loop's goroutine and never wait. A *tls.Conn after
// its handshake has all methods of a Layer except Over, if the connection beneath it can be replaced.
type Layer interface {
	// Over is called once, before the other methods. From then on the layer reads and writes beneath, in place
	// of the connection that it was made over. A Read of beneath returns syscall.EAGAIN where it would wait. A
	// Write takes all bytes, and keeps those for which the socket has no room. Deadlines have no effect.
	Over(beneath net.Conn)
	// Read implements io.Reader. p belongs to the loop, and is not cleared: a Layer that claims more bytes than
	// it has written passes on bytes of other sessions. Read returns syscall.EAGAIN if beneath did and there is
	// nothing to return yet; the next call continues there. io.EOF is the orderly end of the peer. 0 and nil end
	// the session with io.ErrNoProgress.
	Read(p []byte) (int, error)
	// Write implements io.Writer.
	Write(p []byte) (int, error)
	// CloseWrite says to the peer that no more comes. Read goes on.
	CloseWrite() error
}

// A Gate (relay.Socket.Gate) holds back the bytes of one side of a session on a loop until the other side has
// answered, or until the Gate has looked at them. Meanwhile they stay in the socket's queue. Timeouts, accounts
// and ends are as in any session: an end of file or reset ends its direction as usual, even if the gate is
// closed. No [Carrier] gets the session before its gate is open. A Gate's methods are called on the loop's
// goroutine, must not wait, and borrow their bytes for the call.
type Gate interface {
	// Answered is called with the bytes of the other side as they are read, and with no bytes at the end of
	// file, until the gate is open. The bytes are passed on, whatever it returns.
	Answered(b []byte) GateVerdict
	// Pass is called when there may be bytes that it has not let pass yet, when more have come, and when Answered
	// has returned GateLooks. ahead is what is left of relay.Socket.Ahead; if that is empty, the bytes are in the
	// queue of the socket fd. Pass may peek at them, but a peer that sends pages (sendfile(2)) may change them there.
	// So bytes that Pass decides by have to be read, and returned as took: they are ahead from then on. ended says
	// that the peer has sent its last byte. Pass returns how many bytes may pass, including took and bytes that have
	// not come yet: 0 for none before the next event, [GateOpen] for all from now on. An error ends the session like
	// an error of a read.
	Pass(fd int, ahead []byte, ended bool) (n int, took []byte, err error)
	// Close is the last call, once: when the gate is open for good, or the session has ended.
	Close()
}

// GateOpen is returned by [Gate.Pass] to open a gate for good.
const GateOpen = -1

// A GateVerdict says how a [Gate] goes on after an answer.
type GateVerdict uint8

const (
	// GateHears: call Answered with the bytes that follow.
	GateHears GateVerdict = iota
	// GateLooks: call Pass now, and Answered with the next bytes.
	GateLooks
	// GateOpens: the gate is open for good.
	GateOpens
)

// ErrTransform is the cause of a session's end after an invalid result of its [Transform]. The error says which
// result.
var ErrTransform = errors.New("invalid result of a Transform")

// A Transform changes the bytes that one side of a session on a loop sends, before the other side and a mirror
// get them. So every engine copies these bytes, and relay.FallbackRewrite is counted. The work may be done on other
// goroutines and take long: meanwhile the side is not read, and the loop's other sessions go on. The result need not
// be as long as the input. Each stream has its own Transform. Its methods are called on the loop's goroutine, and
// return soon. An error, or an invalid result ([ErrTransform]), ends the session with relay.ReasonError; both sides
// are reset.
type Transform interface {
	// Begin is called once, before the others. wake makes the loop call Take; any goroutine may call wake at
	// any time.
	Begin(wake func())
	// Most returns how many bytes the next Put takes, at least 1.
	Most() int
	// Put takes the next bytes, which are borrowed for the call. It is called without bytes if bytes are held
	// back and nothing has come for relay.Socket.Hold.
	Put(b []byte)
	// End is called at the end of the source's bytes, once.
	End()
	// Take puts the bytes to pass on into b, which is zero, and returns their number. It is called after each
	// Put and End, after each wake, and again after it has returned bytes. busy says that work is under way,
	// which ends with a wake; before that neither Put nor End is called.
	Take(b []byte) (n int, busy bool, err error)
	// Held returns how many bytes Take has still to return. It must be 0 when Take, after End, returns no bytes
	// and is not busy.
	Held() int
	// Close is the last call, once, at the end of the session, whether work is under way or not.
	Close()
}

// A MirrorObserver sees the bytes of the source of a mirrored session, and the answers of both the session's
// other side and the shadow. Its methods are called on the loop's goroutine, must not wait, and borrow their
// bytes for the call.
type MirrorObserver interface {
	// Sent is called with bytes of the source that the other side has taken.
	Sent(b []byte)
	// Skipped is called with a number of the source's bytes that were spliced, so that no observer sees them. The
	// calls of Skipped and Sent come in the order of the bytes.
	Skipped(n int)
	// SentAll is called at the source's end of file, unless the other side has ended its answers before. Many
	// servers then drop answers that they have not sent yet, so the point where the answers stop says nothing
	// about the shadow.
	SentAll()
	// Answered is called with bytes of the other side that the source has taken, and ShadowAnswered with bytes
	// of the shadow. Neither waits for the other: answers may come before the shadow is connected. They return
	// false if the observer wants no further calls.
	Answered(b []byte) (more bool)
	ShadowAnswered(b []byte) (more bool)
	// Ended is the last call, once: when the observer wants no further calls, when both answers have ended, or
	// when one answer has ended without an end of file. complete says that both answers were seen from the
	// first byte to the end of file, and that the shadow got the same bytes as the other side. Ended may come
	// after relay.MirrorOwner.MirrorEnded.
	Ended(complete bool)
}

// MirrorResult is the result of a mirror.
type MirrorResult struct {
	Reason MirrorReason
	// Teed and Copied are the bytes that the shadow's socket took. Teed bytes were duplicated by tee(2), and
	// never entered the memory of this process; Copied bytes were written from its memory.
	Teed, Copied int64
	// Undelivered is how many of the bytes given to the mirror its shadow has not taken. Bytes that came after
	// the mirror's end do not count.
	Undelivered int64
	// Answered is how many bytes the shadow has sent.
	Answered int64
	Err      error // with MirrorConnect, MirrorReset and MirrorError
}

// MirrorReason is why a mirror ended.
type MirrorReason uint8

const (
	// MirrorNone: the mirror has not ended.
	MirrorNone MirrorReason = iota
	// MirrorComplete: the shadow got all bytes, and the source's end.
	MirrorComplete
	// MirrorBehind: the mirror's pipes could not take all bytes that the session had read.
	MirrorBehind
	// MirrorLate: the shadow did not take or acknowledge bytes within the mirror's patience; or the patience
	// after the session's end was over before the shadow was connected or had everything.
	MirrorLate
	// MirrorConnect: the connection to the shadow failed.
	MirrorConnect
	// MirrorReset: the shadow has reset or closed its connection.
	MirrorReset
	// MirrorPipe: no pipe was available for bytes that are spliced.
	MirrorPipe
	// MirrorCut: the source was reset, or the session ended without an end of file of the source; the shadow
	// was reset.
	MirrorCut
	// MirrorError: a read or write failed otherwise.
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
