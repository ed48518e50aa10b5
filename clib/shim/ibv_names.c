/* Names of values, for messages of programs, and rates. */
#include "verbs_local.h"

#define NAME(list, i) ((size_t)(i) < sizeof list / sizeof *list && list[i] ? list[i] : "unknown")

CULVERT_EXPORT const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	static const char *const names[] = {
		"success", "local length error", "local QP operation error", "local EE context operation error", "local protection error",
		"Work Request Flushed Error", "memory management operation error", "bad response error", "local access error",
		"remote invalid request error", "remote access error", "remote operation error", "transport retry counter exceeded",
		"RNR retry counter exceeded", "local RDD violation error", "remote invalid RD request", "aborted error",
		"invalid EE context number", "invalid EE context state", "fatal error", "response timeout error", "general error",
	};
	return NAME(names, status);
}

CULVERT_EXPORT const char *ibv_node_type_str(enum ibv_node_type type)
{
	static const char *const names[] = {NULL, "InfiniBand channel adapter", "InfiniBand switch", "InfiniBand router", "iWARP NIC", "usNIC", "usNIC UDP", "unspecified"};
	return NAME(names, type);
}

CULVERT_EXPORT const char *ibv_port_state_str(enum ibv_port_state state)
{
	static const char *const names[] = {"no state change (NOP)", "down", "init", "armed", "active", "active defer"};
	return NAME(names, state);
}

CULVERT_EXPORT const char *ibv_event_type_str(enum ibv_event_type event)
{
	static const char *const names[] = {
		"CQ error", "local work queue catastrophic error", "invalid request local work queue error", "local access violation work queue error",
		"communication established", "send queue drained", "path migrated", "path migration request error", "local catastrophic error",
		"port active", "port error", "LID change", "P_Key change", "SM change", "SRQ catastrophic error", "SRQ limit reached",
		"last WQE reached", "client reregistration", "GID table change", "WQ fatal",
	};
	return NAME(names, event);
}

/* Rates of paths: code, multiple of 2.5 Gbit/s (0: none), Mbit/s. */
static const struct {
	int code, multiple, mbps;
} rates[] = {
	{2, 1, 2500}, {5, 2, 5000}, {3, 4, 10000}, {6, 8, 20000}, {4, 12, 30000}, {7, 16, 40000}, {8, 24, 60000}, {9, 32, 80000},
	{10, 48, 120000}, {11, 0, 14062}, {12, 0, 56250}, {13, 0, 112500}, {14, 0, 168750}, {15, 0, 25781}, {16, 0, 103125},
	{17, 0, 206250}, {18, 0, 309375}, {19, 0, 28125}, {20, 0, 53125}, {21, 0, 212500}, {22, 0, 425000},
};

#define RATE(name, from, to, none)                                       \
	CULVERT_EXPORT int name(int value);                              \
	CULVERT_EXPORT int name(int value)                               \
	{                                                                \
		for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) \
			if (rates[i].from == value && rates[i].to)       \
				return rates[i].to;                      \
		return none;                                             \
	}
RATE(ibv_rate_to_mult, code, multiple, -1)
RATE(mult_to_ibv_rate, multiple, code, 0)
RATE(ibv_rate_to_mbps, code, mbps, -1)
RATE(mbps_to_ibv_rate, mbps, code, 0)
