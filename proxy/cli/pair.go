package cli

import (
	"strconv"
	"strings"

	"github.com/alecthomas/kong"
)

// A Pair is an argument that may have the one after it in the same word, behind a slash: shop/one for shop one. So
// lists print the two. A word of its own after it leaves the slash alone, unless that is a number, which is an
// argument further on.
type Pair string

// Decode implements [kong.MapperValue].
func (p *Pair) Decode(ctx *kong.DecodeContext) error {
	var word string
	if err := ctx.Scan.PopValueInto("string", &word); err != nil {
		return err
	}
	first, second, both := strings.Cut(word, "/")
	if both && first != "" && second != "" && !followed(ctx.Scan.Peek()) {
		word = first
		ctx.Scan.PushTyped(second, kong.PositionalArgumentToken)
	}
	*p = Pair(word)
	return nil
}

// followed reports whether a token is an argument that is no number.
func followed(t kong.Token) bool {
	_, err := strconv.Atoi(t.String())
	return err != nil && t.IsValue()
}
