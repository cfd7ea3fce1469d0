package main

import (
	"bytes"
	"io"
	"net/http"
	"time"

	"github.com/penstock/penstock/arena"
)

// maxHead bounds the head of a request: a longer one is refused.
const maxHead = 8 << 10

// A rest is the part of a large file still to be sent.
type rest struct {
	from io.ReaderAt
	at   int64
	left int64
}

// fill appends the requested bytes, and reports whether there are more. It stops when another step might not
// fit below the high mark, so vecio.ErrFull never occurs.
func (c *conn) fill() (more bool, err error) {
	for c.out.Pending()+most <= high {
		if c.rest.left == 0 {
			more, err = c.respond()
		} else {
			more, err = true, c.append()
		}
		switch {
		case err == arena.ErrBudget: // slots come back as the kernel takes pending bytes
			return true, nil
		case err != nil || !more:
			return false, err
		}
	}
	return true, nil
}

// append adds a slot of the file, which the writer gives back when it is sent. If all slots are out, one buffer
// of the heap at a time keeps the connection going.
func (c *conn) append() error {
	r := &c.rest
	h, err := c.slots.Get(int(min(r.left, arena.MaxSlot)), arena.Other)
	if err != nil && c.out.Pending() > 0 {
		return err
	}
	var b []byte
	if err != nil {
		b = make([]byte, arena.MaxSlot)
	} else {
		b, _ = c.slots.Bytes(h) // cannot fail: the slot is out
	}
	n, failure := r.from.ReadAt(b[:min(r.left, int64(len(b)))], r.at)
	r.at, r.left = r.at+int64(n), r.left-int64(n)
	switch {
	case err != nil:
		err = c.out.Append(b[:n])
	case n > 0:
		err = c.out.Own(b[:n], c.slots)
	default:
		err = c.slots.Put(h)
	}
	if n == 0 { // the file has become shorter than the length that the client was told
		err = failure
	}
	return err
}

// respond answers the next request, if its whole head is there.
func (c *conn) respond() (bool, error) {
	n := bytes.Index(c.in[:min(len(c.in), maxHead)], []byte("\r\n\r\n"))
	switch {
	case c.end || n < 0 && len(c.in) < maxHead:
		return false, nil
	case n < 0:
		return true, c.answer(nil, tooLarge)
	}
	c.head.Reset(c.in[:n+4])
	c.parser.Reset(&c.head)
	r, err := http.ReadRequest(c.parser)
	if err != nil || r.Host == "" && r.ProtoAtLeast(1, 1) {
		return true, c.answer(nil, badRequest)
	}
	c.in = c.in[n+4-c.head.Len()-c.parser.Buffered():]
	if len(c.in) == 0 {
		c.in = nil // an idle connection keeps no memory
	}
	return true, c.answer(r, c.files.find(r))
}

// answer appends the head of a response, and the body if it is in memory. A nil request is one that could not
// be parsed.
func (c *conn) answer(r *http.Request, p *page) error {
	end := "\r\n"
	if r == nil || r.Close || !r.ProtoAtLeast(1, 1) || r.ContentLength != 0 {
		c.end, c.in = true, nil
		end = "Connection: close\r\n\r\n"
	}
	c.date = time.Now().UTC().AppendFormat(c.date[:0], "Date: "+http.TimeFormat+"\r\n")
	err := c.out.AppendString(p.head)
	if err == nil {
		err = c.out.Append(c.date) // short enough to be copied at once
	}
	if err == nil {
		err = c.out.AppendString(end)
	}
	switch {
	case err != nil || r != nil && r.Method == http.MethodHead:
	case p.file != nil:
		c.rest = rest{from: p.file, left: p.size}
	default:
		err = c.out.Append(p.body)
	}
	return err
}
