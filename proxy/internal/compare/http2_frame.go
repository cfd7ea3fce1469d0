package compare

import "encoding/binary"

// Types and flags of frames (RFC 9113, section 6).
const (
	frameData         = 0
	frameHeaders      = 1
	frameReset        = 3
	framePush         = 5
	frameContinuation = 9

	flagEndStream  = 1
	flagEndHeaders = 4
	flagPadded     = 8
	flagPriority   = 0x20
)

const frameHeaderBytes = 9

// A frameHandler takes the frames of one direction.
type frameHandler interface {
	// begin is the begin of a frame that has fields or data, or that resets a stream.
	begin(f *frames) error
	// fragment is bytes of fields.
	fragment(b []byte) error
	// data is bytes of DATA, or the code of a reset.
	data(f *frames, b []byte) error
	// end is the end of a frame.
	end(f *frames) error
}

// frames reads the frames of one direction of HTTP/2. Their content is handed on as it comes.
type frames struct {
	header  [frameHeaderBytes]byte
	n       int // bytes of the header that are there
	kind    byte
	flags   byte
	stream  uint32
	promise uint32 // the stream that a PUSH_PROMISE is for
	rest    int    // bytes of the payload that are missing
	prefix  [6]byte
	prefixN int    // bytes of the prefix that are there
	padding int    // bytes at the end of the payload
	open    uint32 // the stream whose head has not ended, or 0
	ends    bool   // that head ends its stream
}

// read takes the next bytes.
func (f *frames) read(b []byte, h frameHandler) error {
	for len(b) > 0 || f.n == frameHeaderBytes && f.rest == 0 {
		if f.n < frameHeaderBytes {
			n := copy(f.header[f.n:], b)
			if f.n, b = f.n+n, b[n:]; f.n == frameHeaderBytes {
				if err := f.begin(); err != nil {
					return err
				}
				if err := f.started(h); err != nil {
					return err
				}
			}
			continue
		}
		n, err := f.payload(b, h)
		if err != nil {
			return err
		}
		b = b[n:]
		if f.rest == 0 {
			f.n = 0
			if err := f.finished(h); err != nil {
				return err
			}
		}
	}
	return nil
}

// begin reads the header of a frame.
func (f *frames) begin() error {
	f.rest = int(f.header[0])<<16 | int(f.header[1])<<8 | int(f.header[2])
	f.kind, f.flags = f.header[3], f.header[4]
	f.stream = binary.BigEndian.Uint32(f.header[5:]) &^ (1 << 31)
	f.prefixN, f.padding = 0, 0
	switch {
	case f.open != 0 && (f.kind != frameContinuation || f.stream != f.open), f.open == 0 && f.kind == frameContinuation:
		return unexpected("a head of stream %d is followed by a frame of type %d", f.open, f.kind)
	case f.handled() && f.stream == 0:
		return unexpected("a frame of type %d has no stream", f.kind)
	case f.prefixBytes() > f.rest, f.kind == frameReset && f.rest != 4:
		return unexpected("a frame of type %d has %d bytes", f.kind, f.rest)
	case f.kind == frameHeaders || f.kind == framePush:
		f.open, f.ends = f.stream, f.kind == frameHeaders && f.flags&flagEndStream != 0
	}
	return nil
}

// handled reports whether the frame is one that is compared.
func (f *frames) handled() bool {
	switch f.kind {
	case frameData, frameHeaders, frameReset, framePush, frameContinuation:
		return true
	}
	return false
}

// prefixBytes returns how many bytes are before the content.
func (f *frames) prefixBytes() (n int) {
	if f.flags&flagPadded != 0 && (f.kind == frameData || f.kind == frameHeaders || f.kind == framePush) {
		n++
	}
	switch {
	case f.kind == frameHeaders && f.flags&flagPriority != 0:
		n += 5
	case f.kind == framePush:
		n += 4
	}
	return n
}

// started hands on the begin of a frame as soon as its prefix is there.
func (f *frames) started(h frameHandler) error {
	if f.prefixN < f.prefixBytes() || !f.handled() {
		return nil
	}
	if f.padding > f.rest {
		return unexpected("a frame has more padding than bytes")
	}
	if f.kind == framePush {
		f.promise = binary.BigEndian.Uint32(f.prefix[f.prefixN-4:]) &^ (1 << 31)
	}
	if f.kind == frameContinuation {
		return nil
	}
	return h.begin(f)
}

// payload takes bytes of a frame after its header.
func (f *frames) payload(b []byte, h frameHandler) (n int, err error) {
	if size := f.prefixBytes(); f.prefixN < size {
		if f.prefixN == 0 && f.flags&flagPadded != 0 {
			f.padding = int(b[0])
		}
		n = copy(f.prefix[f.prefixN:size], b)
		f.prefixN += n
		f.rest -= n
		return n, f.started(h)
	}
	n = min(len(b), f.rest-f.padding)
	if n == 0 {
		n = min(len(b), f.rest)
		f.rest -= n
		f.padding -= n
		return n, nil
	}
	f.rest -= n
	switch f.kind {
	case frameData, frameReset:
		err = h.data(f, b[:n])
	case frameHeaders, framePush, frameContinuation:
		err = h.fragment(b[:n])
	}
	return n, err
}

// finished hands on the end of a frame, and of a head with it.
func (f *frames) finished(h frameHandler) error {
	if !f.handled() {
		return nil
	}
	if f.kind != frameData && f.kind != frameReset {
		if f.flags&flagEndHeaders == 0 {
			return nil
		}
		f.open = 0
	}
	return h.end(f)
}

// endsStream reports whether the frame that has ended ends its stream.
func (f *frames) endsStream() bool {
	switch f.kind {
	case frameData:
		return f.flags&flagEndStream != 0
	case frameReset:
		return true
	}
	return f.ends
}

// skip skips n bytes, and reports whether they were data.
func (f *frames) skip(n int, h frameHandler) bool {
	known := f.kind == frameData || !f.handled()
	if f.n < frameHeaderBytes || f.prefixN < f.prefixBytes() || !known || n > f.rest {
		return false
	}
	f.rest -= n
	f.padding = min(f.padding, f.rest)
	if f.rest == 0 {
		f.n = 0
		return f.finished(h) == nil
	}
	return true
}
