// Package storage describes what an open descriptor refers to: the file, its file
// system and block device, what O_DIRECT requires, and how much of it the page cache
// has. Its sources are statx, /proc/self/mountinfo and /sys/dev/block; it never needs
// udev, which containers and small machines lack.
package storage
