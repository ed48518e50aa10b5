# Plays lifetimes of the library: lifetime.sh PROGRAM FILE.
for calls in c hc bc hHc bBc obBhHc ohrc hrc rhc pc phc pohc gc ghc gohc Gc sc shc Pc vc Sc Shc tc tDc thc oc occ oocc ohcc ococ ohrcr ohcH obcB ohrRc C oC oCC hC ooCC ohbrBHC; do
	echo "== $calls"
	$1 $2 $calls 2>&1
	[ $? = 0 ] || echo "ended with $?"
done
for end in 'ohr c' 'hr c' 'ohr cc' 'ohr C' 'ohbrBH C' 'hr C' 'ohrHc c' 'o ohrcc' 'v hrc' 'p c' 'ohF c' 'F oc' 'hF c' 'Tohr c' 'Thr c' 'ohrR c'; do
	echo "== $end"
	$1 $2 $end 2>&1
	[ $? = 0 ] || echo "ended with $?"
done
for end in ohr hr; do
	echo "== $end in a destructor"
	$1 $2 $end '' c 2>&1
	echo "== $end at exit and in a destructor"
	$1 $2 $end c c 2>&1
done
