// Package tune holds everything that Culvert measures in order to choose between
// methods: averages of observed rates ([Rate]), the choice between two methods of
// doing the same work ([Choice]), and the cache of results that outlive a process
// ([Cache]).
//
// # The contract
//
// Nothing is measured on a caller's time. Rates and choices learn from transfers
// that happen anyway. A Choice explores: it gives at most 1 % of the bytes to the
// method that looks slower, and none of them belong to the first transfer of the
// process. Active measurements are made by "culvert tune" and "culvert rdma tune"
// alone; until they have run, built-in values apply.
//
// # The cache
//
// The cache is one JSON file, culvert/tune.json in the user's cache directory
// ($XDG_CACHE_HOME, or ~/.cache). Each entry says what was measured, on which GPU,
// driver, kernel and file system ([Subject]), when, and the result. An entry
// applies only to an identical subject and for 90 days. A file of another version,
// or one that cannot be read, counts as empty: it costs a better choice, never a
// transfer. "culvert tune --show" prints the entries and "culvert tune --clear"
// removes the file.
package tune
