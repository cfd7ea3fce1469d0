package filter

// HoldCompiler has no filter compiled in the background until the function that it returns is called.
func HoldCompiler() (release func()) {
	compiling <- struct{}{}
	return func() { <-compiling }
}
