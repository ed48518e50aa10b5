// Package bench measures transfers between a file and GPU memory, by Culvert's
// routes and by baselines in the same run, and compares them with a pinned copy
// on the same machine. Absolute numbers of different runs are not comparable,
// ratios inside one run are.
package bench
