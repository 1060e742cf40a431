import sys, csv, json, time
from davinci_programs import BUILDERS
from terrazzo.targets.davinci.chips import chip
from terrazzo.targets.davinci.phases import prepare
from terrazzo.targets.davinci.timing import timed
rows=list(csv.DictReader(open(sys.argv[1])))
cache={}
for i,r in enumerate(rows,2):
    if not r['chip'].startswith('910') or r['family'] not in BUILDERS: continue
    if len(sys.argv)>2 and sys.argv[2] not in r['family']: continue
    key=(r['family'],r['chip'],r['cores'],r['params'])
    p=json.loads(r['params'])
    if key not in cache:
        t0=time.time()
        prog=BUILDERS[r['family']](p,int(r['cores'])); ch=chip(r['chip'])
        pre=prepare(prog,ch,{}, {}); t1=time.time()
        tl=timed(prog,pre,ch,window_cycles=0); t2=time.time()
        cache[key]=tl
        print(f"   prepare {t1-t0:.2f} time {t2-t1:.2f} throttle {tl.throttle:.3f} hbm {tl.hbm_bytes/1e6:.0f} MB classes {[len(x.classes) for x in pre]}")
    tl=cache[key]; kind='cube' if 'cube' in tl.cores else 'vector'
    us=lambda pipe: (tl.pipe(kind,pipe).busy/tl.chip.mhz)
    m=r['metric']
    v={'task_us':lambda:tl.us,'aicore_us':lambda:tl.cycles/tl.chip.mhz,'mte2_or_core_us':lambda:tl.cycles/tl.chip.mhz,'ticks':lambda:tl.cycles/tl.chip.mhz*p['counter_mhz'],'mac_us':lambda:us('M'),'vec_us':lambda:us('V'),'mte1_us':lambda:us('MTE1'),'mte2_us':lambda:us('MTE2'),'mte3_us':lambda:us('MTE3'),'fixpipe_us':lambda:us('FIX'),'cube_pct':lambda:100*us('M')/tl.us,'mte2_pct':lambda:100*us('MTE2')/tl.us}[m]()
    print(i,r['family'],r['chip'],r['cores'],m,r['value'],f"{v:.2f} {100*(v/float(r['value'])-1):+.1f}%")
