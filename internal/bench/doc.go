// Package bench measures transfers between a file and GPU memory, by Culvert's
// routes and by its peers in the same run, against the ceiling of the same
// machine: absolute figures of different runs are not comparable, ratios inside
// one run are.
package bench
