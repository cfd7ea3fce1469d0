// Package process runs the parts of a benchmark as processes of their own. So the processor
// time of each is separate from the others'. It makes sure that none of them outlives the
// benchmark, however that ends. It is for Linux only.
package process
