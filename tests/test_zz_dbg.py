from helpers_gate import *
from test_gate_noise import noisy_evaluation
def test_it(case_of):
    case=noisy_evaluation(case_of("all"),"ppo/gradient")
    r=gate.judge(case)
    for c in r.comparisons:
        if c.verdict!="match": print(c.quantity,c.mode,c.left,c.right,c.verdict,c.worst)
    for i in r.invariants:
        if i.verdict!="match": print(i.name,i.implementation,i.verdict,i.worst)
    assert 0
