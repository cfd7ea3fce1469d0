// Package process runs the parts of a benchmark as processes of their own, so
// that each one's processor time can be told from the others', and sees to it
// that none of them outlives the benchmark, however that ends. It is for Linux
// only.
package process
