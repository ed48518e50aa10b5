package main

// habits has, for flags that people know from cp, rsync and rclone and that a command
// does not have, what to type instead.
var habits = map[string]map[string]string{
	"cp": {
		"a":         useArchive,
		"archive":   useArchive,
		"bwlimit":   "use --limit-rate, such as 100M (10^6 bytes a second)",
		"P":         useProgress,
		"p":         "use --preserve for owner, mode and times",
		"progress":  useProgress,
		"R":         useDirectory,
		"r":         useDirectory,
		"recursive": useDirectory,
	},
}

const (
	useArchive   = "directories are copied as a whole; use --preserve for owner, mode and times"
	useDirectory = "not needed, directories are copied as a whole"
	useProgress  = "not needed, a terminal shows progress"
)
