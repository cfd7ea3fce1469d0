// Package nearest measures how far words are from each other, to find the word that was meant.
package nearest

// Longest is the length of the longest word that is measured.
const Longest = 128

// Distance returns the number of characters to add, remove, change or swap with the next to
// turn a into b (optimal string alignment). Both are at most Longest long.
func Distance(a, b string) int {
	var rows [3][Longest + 1]int
	for j := range len(b) + 1 {
		rows[0][j] = j
	}
	for i := range len(a) {
		before, last, row := &rows[(i+2)%3], &rows[i%3], &rows[(i+1)%3]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return rows[len(a)%3][len(b)]
}
