package relay

import "math/bits"

// maxMirrorBuffer is how many bytes that the shadow has not taken a mirror without pipes keeps at most.
const maxMirrorBuffer = 256 << 10

// maxMirrorHeap is how many bytes of the heap all mirrors of a loop take at most.
const maxMirrorHeap = 16 << 20

// A mirrorBuffer is the bytes that the shadow of a mirror without pipes has not taken yet. Its memory is the loop's, or the
// heap's where that is spent or has no slots of the size, within maxMirrorHeap, and is given back when it is empty.
type mirrorBuffer struct {
	*buffer
	off, end int
}

// len returns how many bytes there are.
func (q *mirrorBuffer) len() int { return q.end - q.off }

// store keeps bytes behind those that there are, as many as there is room for, and returns how many.
func (m *Mirror) store(b []byte) int {
	q := &m.buffered
	n := min(len(b), maxMirrorBuffer-q.len())
	if need := q.len() + n; (q.buffer == nil || need > len(q.b)) && !m.growBuffer(need) {
		return 0
	}
	if q.end+n > len(q.b) {
		q.off, q.end = 0, copy(q.b, q.b[q.off:q.end])
	}
	q.end += copy(q.b[q.end:], b[:n])
	return n
}

// growBuffer has what is kept in a buffer of at least so many bytes. It reports false where there is no memory for one.
func (m *Mirror) growBuffer(need int) bool {
	size := 1 << bits.Len(uint(max(need, smallBuffer)-1))
	larger := m.drv.slot(size)
	if larger.unpooled {
		if m.drv.mirrorHeap+size > maxMirrorHeap {
			return false
		}
		m.drv.mirrorHeap += size
	}
	was := m.buffered
	m.buffered = mirrorBuffer{buffer: larger}
	if was.buffer != nil {
		m.buffered.end = copy(larger.b, was.b[was.off:was.end])
		m.drv.giveBackMirrored(was.buffer)
	}
	return true
}

// giveBackMirrored gives back the buffer of a mirror.
func (d *Driver) giveBackMirrored(b *buffer) {
	if b.unpooled {
		d.mirrorHeap -= len(b.b)
	}
	d.giveBack(b)
}

// drainBuffer has the shadow sent what is kept, as much as it takes.
func (m *Mirror) drainBuffer() (int, error) {
	q := &m.buffered
	n, err := m.socket.send(q.b[q.off:q.end])
	if n > 0 {
		q.off += n
		m.res.Copied += int64(n)
	}
	if q.len() == 0 {
		m.dropBuffer()
	}
	return n, err
}

// dropBuffer gives the memory back.
func (m *Mirror) dropBuffer() {
	if m.buffered.buffer != nil {
		m.drv.giveBackMirrored(m.buffered.buffer)
		m.buffered = mirrorBuffer{}
	}
}
