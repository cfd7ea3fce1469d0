package main

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// longest is the most bytes of a message.
const longest = 1 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A message arrives in pieces of any length.
type message struct {
	header [4]byte
	have   int // bytes of the header
	left   int // bytes of the payload still to come
	sum    uint32
}

// answer appends the answers to b. They take up to most bytes: refusing a piece of an answer would cut the
// answer in two.
func (c *conn) answer(b []byte) error {
	m := &c.in
	for len(b) > 0 {
		if m.have < len(m.header) {
			n := copy(m.header[m.have:], b)
			b = b[n:]
			if m.have += n; m.have < len(m.header) {
				return nil
			}
			if err := c.begin(); err != nil {
				return err
			}
		}
		p := b[:min(len(b), m.left)]
		b = b[len(p):]
		m.left -= len(p)
		m.sum = crc32.Update(m.sum, castagnoli, p)
		if err := c.out.Append(p); err != nil {
			return err
		}
		if m.left == 0 {
			if err := c.finish(); err != nil {
				return err
			}
		}
	}
	return nil
}

// begin appends the header of the answer. The answer's length is known before the message is complete.
func (c *conn) begin() error {
	n := binary.BigEndian.Uint32(c.in.header[:])
	if n > longest {
		return fmt.Errorf("message of %d bytes: at most %d are allowed", n, longest)
	}
	c.in.left = int(n)
	return c.number(n + crc32.Size)
}

// finish appends the trailer, and resets the state for the next message.
func (c *conn) finish() error {
	if err := c.number(c.in.sum); err != nil {
		return err
	}
	c.in = message{}
	return unblocked(c.out.End())
}

// number appends 4 bytes, few enough to be copied at once. They overwrite the header, which has been read.
func (c *conn) number(n uint32) error {
	b := c.in.header[:]
	binary.BigEndian.PutUint32(b, n)
	return c.out.Append(b)
}
