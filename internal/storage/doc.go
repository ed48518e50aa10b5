// Package storage knows what an open descriptor stands on: the file, its file
// system and block device, what O_DIRECT asks of it, and how much of it the
// page cache holds. It finds all of that in /proc/self/mountinfo, /sys/dev/block
// and statx, and never needs udev, which containers and small machines lack.
package storage
