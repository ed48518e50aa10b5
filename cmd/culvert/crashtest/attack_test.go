package crashtest

const attackerRole = "CRASHTEST_ATTACKER"

func attack() {}
